/** The commands of the audit, and of what is kept of a person or case. */
import type { Config } from '../config.ts'
import { operator } from '../core/admin/admin.ts'
import { type AuditQuery, exportAudit, listAudit, verifyWholeAudit } from '../core/admin/audit.ts'
import { eraseSubject, exportSubject } from '../core/admin/subjects.ts'
import { orgNamed, withAdministered } from './admin-context.ts'
import { exitCodes, type Io } from './process-io.ts'
import { printTable } from './table.ts'

/** The audit does not prove itself. */
const disproved = 1

/** Proves the audit, and prints what to prove it by later. @param anchor as it was printed then. */
export function auditVerify(config: Config, anchor: string | undefined, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const verdict = await verifyWholeAudit(on, operator, anchor)
    if (!verdict.holds) {
      io.stderr.write(`The audit does not hold: line ${verdict.seq} ${verdict.problem}.\n`)
      return disproved
    }
    io.stderr.write(`The audit holds: ${verdict.lines} lines, ${verdict.erased} of them erased. Keep this elsewhere:\n`)
    io.stdout.write(`${verdict.lines}:${verdict.head}\n`)
    return exitCodes.ok
  })
}

export type AuditFlags = Omit<AuditQuery, 'org'> & { org?: string }

/** Prints the newest lines. */
export function auditList(config: Config, { org, ...flags }: AuditFlags, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const query = { ...flags, ...(org !== undefined && { org: (await orgNamed(on.store, org)).id }) }
    const { items } = await listAudit(on, operator, query, { limit: 100 })
    const rows = items.map(({ seq, at, actor, action, target }) => [`${seq}`, at, actor, action, target])
    printTable([['LINE', 'AT', 'ACTOR', 'ACTION', 'TARGET'], ...rows], io)
    return exitCodes.ok
  })
}

/** Prints every line as JSON, oldest first. */
export function auditExport(config: Config, { org, ...flags }: AuditFlags, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const query = { ...flags, ...(org !== undefined && { org: (await orgNamed(on.store, org)).id }) }
    return printLines(await exportAudit(on, operator, query), io)
  })
}

/** Prints everything that is kept of a subject but what its files hold, as lines of JSON. */
export function subjectsExport(config: Config, subject: string, orgName: string, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const { id } = await orgNamed(on.store, orgName)
    return printLines(await exportSubject(on, operator, id, { subject }), io)
  })
}

/** Erases everything that is kept of a subject; the server that runs erases its threads. */
export function subjectsErase(config: Config, subject: string, orgName: string, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const erased = await eraseSubject(on, operator, (await orgNamed(on.store, orgName)).id, subject)
    const { runs, threads, audit_lines: lines } = erased
    io.stdout.write(`Erased what was kept of ${runs} runs, ${threads} threads and ${lines} lines of the audit.\n`)
    return exitCodes.ok
  })
}

async function printLines(lines: AsyncGenerator<object, void, undefined>, { stdout }: Io): Promise<number> {
  for await (const line of lines) {
    if (!stdout.write(`${JSON.stringify(line)}\n`)) await new Promise((drained) => stdout.once('drain', drained))
  }
  return exitCodes.ok
}
