import { type ChildProcess, spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { StartRefused } from '../base/errors.ts'
import { localUrl } from './api-client.ts'
import { Bridge } from './bridge.ts'
import { ClientError } from './client-error.ts'
import { readLines } from './lines.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'

export interface StdioRequest {
  /** Address of a server. By default the server of this machine, which is started if none runs. */
  url?: string
  keyFile?: string
  /** Value of `?toolsets=`. */
  toolsets?: string
}

/** @throws StartRefused when it is unclear which of several servers is meant. */
function urlOf({ env }: ProcessIo): string {
  try {
    return localUrl(env)
  } catch (error) {
    if (!(error instanceof ClientError)) throw error
    throw new StartRefused('Several servers are running on this machine.', `Choose one: ${error.message}`)
  }
}
/** Creating the first slots can take this long on a slow machine. */
const startMs = 60_000

/**
 * Serves MCP on standard input and output, for clients that start a process. Each message is forwarded to a server over
 * HTTP, and each answer is written as one line.
 * https://modelcontextprotocol.io/specification/2026-07-28/basic/transports#stdio
 * @returns the exit code, once standard input has ended and every request has its answer.
 * @throws StartRefused when no server runs and none can be started, or when the key cannot be read.
 */
export async function stdio(request: StdioRequest, io: ProcessIo): Promise<number> {
  const key = await readKey(request, io)
  const url = request.url ?? io.env.GLOVEBOX_URL
  const started = url === undefined ? await joinOrStart(io) : undefined
  const bridge = new Bridge(toEndpoint(url ?? urlOf(io), request.toolsets), key, async (line) => {
    if (!io.stdout.write(`${line}\n`)) await new Promise((drained) => io.stdout.once('drain', drained))
  })
  io.stop.addEventListener('abort', () => bridge.stop(), { once: true })
  try {
    await Promise.race([forward(io, bridge), bridge.stopped])
    await bridge.settled()
    return exitCodes.ok
  } finally {
    await end(started)
  }
}

async function forward({ stdin }: ProcessIo, bridge: Bridge): Promise<void> {
  for await (const line of readLines(stdin)) if (line.trim() !== '') bridge.take(line)
}

async function readKey({ keyFile }: StdioRequest, { env }: ProcessIo): Promise<string | undefined> {
  if (keyFile === undefined) return env.GLOVEBOX_KEY
  try {
    return (await readFile(keyFile, 'utf8')).trim()
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error)
    throw new StartRefused(`The key file cannot be read: ${problem}.`, 'Check --key-file.')
  }
}

function toEndpoint(url: string, toolsets: string | undefined): URL {
  try {
    const endpoint = new URL(url)
    if (!endpoint.pathname.endsWith('/mcp')) endpoint.pathname = `${endpoint.pathname.replace(/\/$/, '')}/mcp`
    if (toolsets !== undefined) endpoint.searchParams.set('toolsets', toolsets)
    return endpoint
  } catch {
    throw new StartRefused(`${url} is not a valid address.`, 'Use the form http://127.0.0.1:5555.')
  }
}

/** @returns the server that was started, which the caller must stop; `undefined` if one was already running. */
async function joinOrStart(io: ProcessIo): Promise<ChildProcess | undefined> {
  if (await isServed(io, '/healthz')) return undefined
  const [program, ...args] = io.self
  // A client would read the output of the server as messages.
  const server = spawn(program, [...args, 'serve', '--dev'], { stdio: ['ignore', 'pipe', 'pipe'] })
  server.stdout.pipe(io.stderr, { end: false })
  server.stderr.pipe(io.stderr, { end: false })
  for (const untilMs = Date.now() + startMs; Date.now() < untilMs && !io.stop.aborted; await sleep(100)) {
    if (server.exitCode !== null) break
    if (await isServed(io, '/readyz')) return server
  }
  await end(server)
  throw new StartRefused('No server is running on this machine, and none could be started.', 'See its output above.')
}

const isServed = (io: ProcessIo, path: string): Promise<boolean> =>
  fetch(`${urlOf(io)}${path}`).then(
    ({ ok }) => ok,
    () => false,
  )

async function end(server: ChildProcess | undefined): Promise<void> {
  if (!server || server.exitCode !== null || server.signalCode !== null) return
  const ended = new Promise((exited) => server.once('exit', exited))
  server.kill('SIGTERM')
  await ended
}
