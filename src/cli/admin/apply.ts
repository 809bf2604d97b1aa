/** `glovebox apply` and `glovebox diff`: organizations as a file declares them. */
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline/promises'
import type { Command } from 'commander'
import { Refusal, StartRefused } from '../../base/errors.ts'
import { operator } from '../../core/admin/admin.ts'
import { applyDeclaration } from '../../core/admin/declared/apply.ts'
import { type Applied, type Change, type Declaration, parseProblem } from '../../core/admin/declared/declaration.ts'
import type { UpstreamRef } from '../../core/admin/upstreams.ts'
import { note, reporting, send, serverOf, toClientError, withServer } from '../api-client.ts'
import { type Cli, withExamples } from '../command.ts'
import { printJson } from '../output.ts'
import { exitCodes, type ProcessIo } from '../process-io.ts'
import { printable, styled } from '../terminal.ts'
import { adminCommand, withAdmin } from './context.ts'
import { DeclarationFile } from './declared/file.ts'
import { SecretsFile } from './declared/secrets-file.ts'
import { toolNames } from './tools.ts'
import { followed } from './upstream-progress.ts'

interface ApplyOptions {
  file: string
  prune?: boolean
  yes?: boolean
  secretsTo?: string
  plainSecrets?: boolean
  url?: string
  keyFile?: string
  json?: boolean
}

/** Applies a declaration on this machine or on a server. @throws Refusal declaration_invalid. */
type Apply = (declaration: Declaration, how: { prune: boolean; dryRun: boolean }) => Promise<Applied>

export function register(program: Command, cli: Cli): void {
  withExamples(
    fileOptions(adminCommand(program, 'apply', 'Bring organizations into the state that a file declares.'))
      .option('--yes', 'delete what is not declared without asking')
      .option('--secrets-to <file>', 'append the secrets of new keys to this file instead of printing them'),
    'glovebox apply -f organizations.yaml --secrets-to new-keys.yaml',
    'glovebox apply -f organizations.yaml --url https://glovebox.example --key-file admin-token',
  ).action((options: ApplyOptions, command: Command) => run(cli, options, command, apply))
  withExamples(
    fileOptions(adminCommand(program, 'diff', 'Print what apply would change, and exit with 1 if that is anything.')),
    'glovebox diff -f organizations.yaml --prune',
  ).action((options: ApplyOptions, command: Command) => run(cli, options, command, diff))
}

const fileOptions = (command: Command): Command =>
  withServer(
    command
      .requiredOption('-f, --file <file>', 'YAML file with the organizations')
      .option('--prune', 'also delete what the sections of the file do not contain; never organizations and threads')
      .option('--plain-secrets', 'accept secrets that the file contains as text'),
  )

/** What a command does once it can reach the server or its database. @returns the exit code. */
type Work = (
  declaration: Declaration,
  on: Apply,
  options: ApplyOptions,
  io: ProcessIo,
  to?: SecretsFile,
) => Promise<number>

/** Reads the file, as the user who started the command, and does the work of the command. */
async function run(cli: Cli, options: ApplyOptions, command: Command, work: Work): Promise<void> {
  const { io } = cli
  const file = new DeclarationFile(options.file, readText(options.file), {
    env: io.env,
    plainSecrets: options.plainSecrets === true,
  })
  const { declaration } = file
  if (declaration === undefined) {
    cli.exit(report(file, file.problems, io))
    return
  }
  const to = options.secretsTo === undefined ? undefined : new SecretsFile(options.secretsTo)
  try {
    const reported = (on: Apply) => reportMistakes(file, io, () => work(declaration, on, options, io, to))
    if (options.url !== undefined) cli.exit(await reporting(command.name(), io, () => reported(remotely(options, io))))
    else
      await withAdmin(cli, (session) => {
        const follow = <Result>(ref: UpstreamRef, work: Promise<Result>) => followed(session, ref, work)
        return reported((given, how) =>
          applyDeclaration(session, operator, given, { ...how, knownTools: toolNames, follow }),
        )
      })(command)
  } finally {
    to?.close()
  }
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new StartRefused(`Cannot read ${file}: ${(error as Error).message}.`, 'Check the path of the file.')
  }
}

/** Sends the declaration to the admin API of a server. */
const remotely =
  (options: ApplyOptions, io: ProcessIo): Apply =>
  async (declaration, { prune, dryRun }) => {
    const server = await serverOf(options, io)
    const body = { ...declaration, prune, dry_run: dryRun }
    const response = await send(server, '/admin/v1/apply', { body })
    if (response.ok) return (await response.json()) as Applied
    const answer = (await response
      .clone()
      .json()
      .catch(() => ({}))) as { problems?: string[] }
    const { problems } = answer
    if (problems !== undefined) throw new Refusal('declaration_invalid', { count: problems.length, problems })
    throw await toClientError(response)
  }

/** Prints the mistakes that the server found in the declaration, with their lines. */
async function reportMistakes(file: DeclarationFile, io: ProcessIo, work: () => Promise<number>): Promise<number> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof Refusal && error.code === 'declaration_invalid')) throw error
    return report(file, (error.details.problems as readonly string[]).map(parseProblem), io)
  }
}

function report(file: DeclarationFile, problems: DeclarationFile['problems'], { stderr }: ProcessIo): number {
  const lines = file.linesOf(problems)
  for (const line of lines) stderr.write(`${printable(line, stderr)}\n`)
  stderr.write(`glovebox: ${lines.length === 1 ? '1 mistake' : `${lines.length} mistakes`}; nothing was changed\n`)
  return exitCodes.usage
}

async function apply(
  declaration: Declaration,
  on: Apply,
  { prune = false, yes = false, json = false }: ApplyOptions,
  io: ProcessIo,
  to?: SecretsFile,
): Promise<number> {
  if (prune && !yes) {
    const { changes } = await on(declaration, { prune, dryRun: true })
    const deleted = changes.filter(({ action }) => action === 'delete')
    if (deleted.length > 0 && !(await confirmed(deleted, io))) return exitCodes.usage
  }
  const applied = await on(declaration, { prune, dryRun: false })
  to?.append(applied.keys)
  const keys = to === undefined ? applied.keys : applied.keys.map(({ secret: _secret, ...key }) => key)
  if (json) printJson({ ...applied, keys }, io)
  else printApplied(applied, io, to === undefined)
  return exitCodes.ok
}

async function diff(
  declaration: Declaration,
  on: Apply,
  { prune = false, json = false }: ApplyOptions,
  io: ProcessIo,
): Promise<number> {
  const { changes } = await on(declaration, { prune, dryRun: true })
  if (json) printJson(changes, io)
  else printChanges(changes, io)
  return changes.length === 0 ? exitCodes.ok : 1
}

/** Asks on the terminal. Without one the answer is no. */
async function confirmed(deleted: readonly Change[], io: ProcessIo): Promise<boolean> {
  for (const change of deleted) io.stderr.write(`${lineOf(change, io)}\n`)
  if (io.stdin.isTTY !== true) {
    note('apply', `use --yes to delete ${deleted.length} of these; nothing was changed`, io, 'red')
    return false
  }
  const terminal = createInterface({ input: io.stdin, output: io.stderr })
  try {
    const answer = await terminal.question(`Delete ${deleted.length}? Type yes: `, { signal: io.stop })
    if (answer.trim() === 'yes') return true
    note('apply', 'nothing was changed', io)
    return false
  } finally {
    terminal.close()
  }
}

function printApplied({ changes, keys, warnings }: Applied, io: ProcessIo, withSecrets: boolean): void {
  printChanges(changes, io)
  for (const warning of warnings) note('apply', warning, io)
  if (keys.length === 0 || !withSecrets) return
  note('apply', 'the secrets of new keys are shown only once:', io)
  for (const { org, name, secret } of keys) io.stdout.write(`${printable(`${org}/${name}`, io.stdout)}  ${secret}\n`)
}

function printChanges(changes: readonly Change[], io: ProcessIo): void {
  for (const change of changes) io.stdout.write(`${lineOf(change, io)}\n`)
  if (changes.length === 0) io.stderr.write('glovebox: everything is as declared\n')
}

const signs = { create: '+', update: '~', delete: '-' } as const
const colors = { create: 'green', update: 'yellow', delete: 'red' } as const

/** A change as one line, such as `~ key acme/build (tools, expires_at)`. */
function lineOf({ action, kind, org, name, fields }: Change, { stdout, env }: ProcessIo): string {
  const what = kind === 'organization' ? org : `${org}/${name}`
  const detail = fields.length === 0 ? '' : ` (${fields.join(', ')})`
  const line = printable(`${signs[action]} ${kind} ${what}${detail}`, stdout)
  return styled(line, colors[action], stdout, env)
}
