import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { Redactor } from '../src/base/redaction/redactor.ts'
import { freePort } from './downloads.ts'
import { median, shown, table } from './figures.ts'
import { GloveboxServer } from './glovebox-server.ts'

const execute = promisify(execFile)

/** Time of one operation of one server; `undefined` where it has no such tool. */
export interface WorkspaceFigure {
  operation: string
  p50Ms: Readonly<Record<string, number | undefined>>
}

export interface WorkspaceFigures {
  figures: WorkspaceFigure[]
  /** Megabytes of program text per second of processor time, with two registered secrets. */
  redactorMBs: number
}

/** The servers that ours is compared with, from npm, and a proxy that serves them over HTTP, as ours is. */
const peers = [
  '@modelcontextprotocol/server-filesystem@2026.8.31',
  '@wonderwhy-er/desktop-commander@0.2.52',
  'mcp-proxy@6.7.19',
]

/** 20,000 files of about a kilobyte; ten of them contain the word that is searched for. */
const tree = `import os, sys
root = sys.argv[1]
for d in range(200):
    os.makedirs(f"{root}/d{d}", exist_ok=True)
    for n in range(100):
        word = "needle" if n == 50 and d % 20 == 0 else "hay"
        with open(f"{root}/d{d}/file{n}.txt", "w") as file:
            file.write(f"head of {d} {n}: old\\n" + f"line of {d} {n} {word}\\n" * 40)
`

/** Calls a tool. @returns the text of its result. @throws Error for a result with `isError`. */
type Call = (name: string, input: object) => Promise<string>

interface Server {
  name: string
  call: Call
  close(): Promise<void>
  /** The calls of each operation; `round` alternates what an edit replaces. */
  operations: Readonly<Record<string, ((round: number) => Promise<string>) | undefined>>
}

const operations = ['read', 'edit', 'find files', 'search content', 'run true']

/** Measures the same operations of this server and others, on the same tree. @param rounds of each operation. */
export async function measureWorkspace(rounds: number): Promise<WorkspaceFigures> {
  const directory = mkdtempSync(join(tmpdir(), 'glovebox-bench-peers-'))
  // The others can use all processors.
  const glovebox = await GloveboxServer.start(['--limit-cpus', `${availableParallelism()}`])
  const servers: Server[] = []
  try {
    writeFileSync(join(directory, 'package.json'), '{ "private": true }')
    const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']
    await execute('npm', ['install', ...flags, ...peers], { cwd: directory })
    const root = join(directory, 'tree')
    await execute('python3', ['-c', tree, root])
    servers.push(await ours(glovebox))
    for (const way of [overPipes, overProxy]) {
      servers.push(await filesystem(await way(directory, filesystemCommand(directory, root)), root))
      servers.push(await desktopCommander(await way(directory, desktopCommanderCommand(directory)), root))
    }
    const figures: WorkspaceFigure[] = []
    for (const operation of operations) {
      const tookMs = new Map(servers.map(({ name }) => [name, [] as number[]]))
      // Interleaved, so that all meet the same load of the machine.
      for (let round = 0; round < rounds; round += 1) {
        for (const { name, operations: own } of servers) {
          const startedMs = performance.now()
          await own[operation]?.(round)
          tookMs.get(name)!.push(performance.now() - startedMs)
        }
      }
      const p50Ms = servers.map(({ name, operations: own }) => [name, own[operation] && median(tookMs.get(name)!)])
      figures.push({ operation, p50Ms: Object.fromEntries(p50Ms) })
    }
    return { figures, redactorMBs: redactorThroughput() }
  } finally {
    for (const server of servers) await server.close()
    await glovebox.stop()
    rmSync(directory, { recursive: true, force: true })
  }
}

/** A server that a client is connected to. */
interface Connection {
  /** How the client reaches it, for the name of its column. */
  way: string
  call: Call
  close(): Promise<void>
}

interface Command {
  args: readonly string[]
  env?: Record<string, string>
}

async function connect(
  way: string,
  transport: Transport,
  stop: () => Promise<void> = async () => {},
): Promise<Connection> {
  const client = new Client({ name: 'bench', version: '1.0.0' })
  await client.connect(transport)
  const call: Call = async (name, input) => {
    const result = await client.callTool({ name, arguments: { ...input } })
    if (result.isError) throw new Error(`${name}: ${JSON.stringify(result.content).slice(0, 500)}`)
    return (result.content as { text?: string }[]).map(({ text = '' }) => text).join('\n')
  }
  const close = async () => {
    await client.close()
    await stop()
  }
  return { way, call, close }
}

/** As editors start such servers. */
const overPipes = (_directory: string, { args, env }: Command): Promise<Connection> =>
  connect(
    'pipes',
    new StdioClientTransport({ command: process.execPath, args: [...args], ...(env && { env }), stderr: 'ignore' }),
  )

/** As such servers are shared: behind a proxy, with a session for the client. */
async function overProxy(directory: string, { args, env }: Command): Promise<Connection> {
  const port = await freePort()
  const proxy = join(directory, 'node_modules/mcp-proxy/dist/bin/mcp-proxy.mjs')
  const flags = ['--server', 'stream', '--host', '127.0.0.1', '--port', `${port}`]
  const child = spawn(process.execPath, [proxy, ...flags, '--', process.execPath, ...args], {
    stdio: 'ignore',
    env: { ...process.env, ...env },
  })
  const stop = async () => {
    const ended = once(child, 'exit')
    child.kill()
    await ended
  }
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await connect('HTTP', new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${port}/mcp`)), stop)
    } catch (error) {
      if (attempt === 100) {
        await stop()
        throw error
      }
      await sleep(100)
    }
  }
}

/** Of the file that a server edits: each has one of its own, since they share the tree. */
function edited(directory: number) {
  const texts = [`head of ${directory} 7: old`, `head of ${directory} 7: new`] as const
  return {
    path: `d${directory}/file7.txt`,
    /** What a round replaces, and by what. */
    swapped: (round: number) => (round % 2 === 0 ? texts : ([texts[1], texts[0]] as const)),
  }
}

async function ours(server: GloveboxServer): Promise<Server> {
  const url = new URL(`${server.url}/mcp?toolsets=workspace`)
  const { call, close } = await connect('HTTP', new StreamableHTTPClientTransport(url))
  await call('Write', { file_path: 'tree.py', content: tree })
  await call('Bash', { command: 'python3 tree.py . && rm tree.py' })
  const { path, swapped } = edited(7)
  await call('Read', { file_path: path })
  return {
    name: 'glovebox, HTTP',
    call,
    close,
    operations: {
      read: () => call('Read', { file_path: 'd9/file9.txt' }),
      edit: (round) => {
        const [old_string, new_string] = swapped(round)
        return call('Edit', { file_path: path, old_string, new_string })
      },
      'find files': () => call('Glob', { pattern: '**/file50.txt', limit: 200 }),
      'search content': () => call('Grep', { pattern: 'needle', output_mode: 'files_with_matches' }),
      'run true': () => call('Bash', { command: 'true' }),
    },
  }
}

const filesystemCommand = (directory: string, root: string): Command => ({
  args: [join(directory, 'node_modules/@modelcontextprotocol/server-filesystem/dist/index.js'), root],
})

async function filesystem({ way, call, close }: Connection, root: string): Promise<Server> {
  const { path, swapped } = edited(way === 'HTTP' ? 8 : 9)
  return {
    name: `server-filesystem, ${way}`,
    call,
    close,
    operations: {
      read: () => call('read_text_file', { path: join(root, 'd9/file9.txt') }),
      edit: (round) => {
        const [oldText, newText] = swapped(round)
        return call('edit_file', { path: join(root, path), edits: [{ oldText, newText }] })
      },
      'find files': () => call('search_files', { path: root, pattern: '**/file50.txt' }),
      'search content': undefined,
      'run true': undefined,
    },
  }
}

const desktopCommanderCommand = (directory: string): Command => ({
  args: [join(directory, 'node_modules/@wonderwhy-er/desktop-commander/dist/index.js')],
  env: { PATH: process.env.PATH ?? '', HOME: directory },
})

async function desktopCommander({ way, call, close }: Connection, root: string): Promise<Server> {
  const { path, swapped } = edited(way === 'HTTP' ? 10 : 11)
  await call('set_config_value', { key: 'telemetryEnabled', value: false })
  // Its first answer comes after 40 ms at the latest, often without results, while the search continues.
  const search = async (input: object) => {
    let text = await call('start_search', { path: root, timeout_ms: 10_000, ...input })
    const sessionId = /search_\d+_\d+/.exec(text)?.[0]
    while (!text.includes('Status: COMPLETED')) {
      text = await call('get_more_search_results', { sessionId, length: 500 })
    }
    return text
  }
  return {
    name: `desktop-commander, ${way}`,
    call,
    close,
    operations: {
      read: () => call('read_file', { path: join(root, 'd9/file9.txt') }),
      edit: (round) => {
        const [old_string, new_string] = swapped(round)
        return call('edit_block', { file_path: join(root, path), old_string, new_string })
      },
      'find files': () => search({ pattern: '**/file50.txt', searchType: 'files' }),
      'search content': () => search({ pattern: 'needle', searchType: 'content' }),
      'run true': () => call('start_process', { command: 'true', timeout_ms: 5_000 }),
    },
  }
}

/** Returns the programs of this project in three languages, a few megabytes. */
function programText(): string {
  const root = join(import.meta.dirname, '..')
  const sources = globSync(['src/**/*.ts', 'guest/**/*.{c,h,py}'], { cwd: root }).sort()
  return sources.map((source) => readFileSync(join(root, source), 'utf8')).join('')
}

/** Returns megabytes per second of processor time. */
function redactorThroughput(): number {
  const redactor = new Redactor([
    { name: 'one', value: 'a-registered-secret-value' },
    { name: 'two', value: 'p@ss w0rd/+x' },
  ])
  const text = programText()
  let best = 0
  for (let round = 0; round < 5; round += 1) {
    const used = process.cpuUsage()
    redactor.find(text)
    const { user, system } = process.cpuUsage(used)
    best = Math.max(best, text.length / (user + system))
  }
  return best
}

export function workspacePart({ figures, redactorMBs }: WorkspaceFigures): string {
  const names = Object.keys(figures[0]?.p50Ms ?? {})
  const rows = figures.map(({ operation, p50Ms }) => [
    operation,
    ...names.map((name) => (p50Ms[name] === undefined ? 'no such tool' : `${shown(p50Ms[name])} ms`)),
  ])
  return [
    '## Workspace tools',
    'Median time of a call by the official MCP client, on the same tree of 20,000 files. Glovebox works in a sandbox. The others are processes of the machine without isolation, reached over pipes, and over HTTP through mcp-proxy.',
    table(['operation', ...names], rows),
    `The redactor scans ${redactorMBs.toFixed(0)} MB of program text per second of processor time.`,
  ].join('\n\n')
}
