/** `glovebox audit`: the audit log. */
import type { Command } from 'commander'
import { operator } from '../../core/admin/admin.ts'
import { type AuditQuery, exportAudit, listAudit, verifyWholeAudit } from '../../core/admin/audit.ts'
import { type Cli, withExamples } from '../command.ts'
import { type Columns, printItems, printJsonLines } from '../output.ts'
import { type AdminSession, adminCommand, withAdmin } from './context.ts'

/** Exit code of `audit verify` when the log was changed. */
const verificationFailed = 1

type Filter = Omit<AuditQuery, 'org'> & { org?: string }

export function register(program: Command, cli: Cli): void {
  const audit = program.command('audit').description('Verify, list and export the audit log.')
  withExamples(
    adminCommand(audit, 'verify', 'Verify that no line of the log was changed, inserted or removed.').option(
      '--anchor <seq:hash>',
      'anchor that an earlier verification printed',
    ),
    'glovebox audit verify',
    'glovebox audit verify --anchor 412:9f1c…',
  ).action(withAdmin(cli, verify))
  filtered(adminCommand(audit, 'list', 'List the newest lines.')).action(withAdmin(cli, list))
  withExamples(
    filtered(adminCommand(audit, 'export', 'Print all lines as JSON, one per line, oldest first.')),
    'glovebox audit export --org acme --from 2027-01-01 >audit.jsonl',
  ).action(withAdmin(cli, exportLines))
}

const filtered = (command: Command): Command =>
  command
    .option('--org <name>', 'lines of this organization')
    .option('--action <action>', 'lines of this action, such as run or key.create')
    .option('--actor <id>', 'lines of this key or token')
    .option('--subject <name>', 'lines of this subject')
    .option('--from <time>', 'start time, such as 2027-01-31 or 2027-01-31T12:00:00Z')
    .option('--until <time>', 'end time, exclusive')

async function verify(session: AdminSession, { anchor }: { anchor?: string }) {
  const verdict = await verifyWholeAudit(session, operator, anchor)
  if (!verdict.holds) {
    session.notify(`The audit log is not intact: line ${verdict.seq} ${verdict.problem}.`)
    session.printResult(verdict, '')
    return verificationFailed
  }
  const { lines, erased, head } = verdict
  session.notify(`The audit log is intact: ${lines} lines, ${erased} of them erased. Store this anchor elsewhere:`)
  session.printResult({ ...verdict, anchor: `${lines}:${head}` }, `${lines}:${head}`)
  return undefined
}

type Line = Awaited<ReturnType<typeof listAudit>>['items'][number]

const columns: Columns<Line> = {
  LINE: ({ seq }) => `${seq}`,
  TIME: ({ at }) => at,
  ACTOR: ({ actor }) => actor,
  ACTION: ({ action }) => action,
  TARGET: ({ target }) => target,
}

async function list(session: AdminSession, { json = false, ...filter }: Filter & { json?: boolean }) {
  const { items } = await listAudit(session, operator, await toQuery(session, filter), { limit: 100 })
  printItems(items, columns, { json }, session.io)
  return undefined
}

async function exportLines(session: AdminSession, filter: Filter) {
  await printJsonLines(await exportAudit(session, operator, await toQuery(session, filter)), session.io)
  return undefined
}

/** The options of the command include settings, which are no part of the query. */
async function toQuery(session: AdminSession, { org, action, actor, subject, from, until }: Filter) {
  const query: AuditQuery = {
    ...(org !== undefined && { org: (await session.orgNamed(org)).id }),
    ...(action !== undefined && { action }),
    ...(actor !== undefined && { actor }),
    ...(subject !== undefined && { subject }),
    ...(from !== undefined && { from }),
    ...(until !== undefined && { until }),
  }
  return query
}
