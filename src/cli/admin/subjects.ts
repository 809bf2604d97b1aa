/** `glovebox subjects`: the data stored about a person or case. */
import type { Command } from 'commander'
import { operator } from '../../core/admin/admin.ts'
import { eraseSubject, exportSubject } from '../../core/admin/subjects.ts'
import { type Cli, withExamples } from '../command.ts'
import { printJsonLines } from '../output.ts'
import { type AdminSession, adminCommand, withAdmin, withOrg } from './context.ts'

export function register(program: Command, cli: Cli): void {
  const subjects = program.command('subjects').description('Export or erase the data stored about a subject.')
  withExamples(
    withOrg(adminCommand(subjects, 'export <subject>', 'Print all data stored about a subject as lines of JSON.')),
    'glovebox subjects export "case 4711" --org acme',
  ).action(withAdmin(cli, exportData))
  withExamples(
    withOrg(
      adminCommand(
        subjects,
        'erase <subject>',
        'Erase all data stored about a subject. Threads require a running server.',
      ),
    ),
    'glovebox subjects erase "case 4711" --org acme',
  ).action(withAdmin(cli, erase))
}

/** Files are listed by name; their content is not included. */
async function exportData(session: AdminSession, subject: string, { org }: { org: string }) {
  const { id } = await session.orgNamed(org)
  await printJsonLines(await exportSubject(session, operator, id, { subject }), session.io)
  return undefined
}

async function erase(session: AdminSession, subject: string, { org }: { org: string }) {
  const erased = await eraseSubject(session, operator, (await session.orgNamed(org)).id, subject)
  const { runs, threads, audit_lines: lines } = erased
  session.printResult(erased, `Erased the data of ${runs} runs, ${threads} threads and ${lines} audit log lines.`)
  return undefined
}
