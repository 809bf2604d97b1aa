/** `glovebox workspaces`: directories of this machine that agents work on, and the review of their changes. */
import type { Command } from 'commander'
import { everyListed, reporting, requestJson, type ServerOptions, serverOf, withServer } from './api-client.ts'
import { type Cli, withExamples } from './command.ts'
import { type Columns, printItems, printJson, withJson } from './output.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'
import { printable, styled } from './terminal.ts'

interface Workspace {
  name: string
  directory: string
  mode: string
}

interface Changes {
  changes: { path: string; change: string }[]
  unsupported: string[]
  incomplete: boolean
  diff?: string
}

type Options = ServerOptions & { json?: boolean; all?: boolean }

export function register(program: Command, { io, exit }: Cli): void {
  const workspaces = program
    .command('workspaces')
    .description('List the host directories that are workspaces, and review changes.')
  const add = (usage: string, description: string) =>
    withServer(withJson(workspaces.command(usage).description(description)))
  withExamples(add('ls', 'List all workspaces.').alias('list'), 'glovebox workspaces ls').action(
    async (options: Options) => exit(await list(options, io)),
  )
  withExamples(
    add('diff <workspace> [path]', 'Show the changes that wait for review.'),
    'glovebox workspaces diff workspace',
    'glovebox workspaces diff app src',
  ).action(async (name: string, path: string | undefined, options: Options) =>
    exit(await diff(name, path, options, io)),
  )
  for (const [act, does] of [
    ['apply', 'Apply changes to the directory.'],
    ['drop', 'Drop changes.'],
  ] as const) {
    withExamples(
      add(`${act} <workspace> [paths...]`, does).option('--all', 'all changes'),
      `glovebox workspaces ${act} workspace --all`,
      `glovebox workspaces ${act} app src/main.py`,
    ).action(async (name: string, paths: string[], options: Options) =>
      exit(await settle(act, name, paths, options, io)),
    )
  }
}

const columns: Columns<Workspace> = {
  WORKSPACE: ({ name }) => name,
  MODE: ({ mode }) => mode,
  DIRECTORY: ({ directory }) => directory,
}

const list = (options: Options, io: ProcessIo): Promise<number> =>
  reporting('workspaces ls', io, async () => {
    const found: Workspace[] = []
    for await (const each of everyListed<Workspace>(await serverOf(options, io), '/v1/workspaces')) found.push(each)
    printItems(found, columns, options, io)
    return exitCodes.ok
  })

const pathOf = (name: string, what: string): string => `/v1/workspaces/${encodeURIComponent(name)}/${what}`

const diff = (name: string, path: string | undefined, options: Options, io: ProcessIo): Promise<number> =>
  reporting('workspaces diff', io, async () => {
    const query = path === undefined ? '' : `?path=${encodeURIComponent(path)}`
    const found = await requestJson<Changes>(await serverOf(options, io), `${pathOf(name, 'changes')}${query}`)
    if (options.json) printJson(found, io)
    else for (const line of (found.diff ?? '').split('\n').slice(0, -1)) io.stdout.write(`${colored(line, io)}\n`)
    return exitCodes.ok
  })

function colored(line: string, { stdout, env }: ProcessIo): string {
  const text = printable(line, stdout)
  if (line.startsWith('+')) return styled(text, 'green', stdout, env)
  return line.startsWith('-') ? styled(text, 'red', stdout, env) : text
}

const settle = (
  act: 'apply' | 'drop',
  name: string,
  paths: readonly string[],
  options: Options,
  io: ProcessIo,
): Promise<number> =>
  reporting(`workspaces ${act}`, io, async () => {
    if (paths.length > 0 === (options.all === true)) {
      io.stderr.write(`glovebox workspaces ${act}: name paths, or use --all for all changes\n`)
      return exitCodes.usage
    }
    const body = paths.length > 0 ? { paths } : {}
    const found = await requestJson<Changes>(await serverOf(options, io), pathOf(name, act), { method: 'POST', body })
    if (options.json) printJson(found, io)
    const done = act === 'apply' ? 'Applied' : 'Dropped'
    if (!options.json) {
      for (const { path, change } of found.changes)
        io.stdout.write(`${done}: ${printable(path, io.stdout)} (${change})\n`)
    }
    return exitCodes.ok
  })
