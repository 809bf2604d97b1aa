/** `glovebox top`: what a server does now, from its runtime tools. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { reporting, type Server, type ServerOptions, send, serverOf, toClientError, withServer } from './api-client.ts'
import { ClientError } from './client-error.ts'
import { type Cli, withExamples } from './command.ts'
import { printJson, withJson } from './output.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'
import { printable, type Style, styled } from './terminal.ts'

interface Options extends ServerOptions {
  json?: boolean
  once?: boolean
  interval: string
}

export function register(program: Command, { io, exit }: Cli): void {
  withExamples(
    withServer(
      withJson(program.command('top').description('Show live what a server does: runs, slots, queue, latency.')),
    )
      .option('--once', 'print once instead of refreshing the terminal')
      .option('--interval <seconds>', 'time between two views', '2'),
    'glovebox top',
    'glovebox top --once --json --key-file ~/.glovebox-admin-token',
  ).action(async (options: Options) => exit(await top(options, io)))
}

/** The reports that the view is made from. */
interface View {
  health: { status: string; score: number; issues: { severity: string; code: string; message: string }[] }
  now: {
    processes: Record<'front' | 'runner', Vitals | null>
    runs: Record<string, number> & { by_ending: Record<string, number>; by_language: Record<string, number> }
    slots: Record<string, number> | null
    queue: { running: number; waiting: number } | null
    /** By state. */
    sandboxes: Record<string, number> | null
    responses: { calls: number; failures: number }
    connections: { open: number; max: number }
    upstreams: { name: string; calls: number; failures: number; failing: number; average_ms: number }[]
  }
}

interface Vitals {
  residentBytes: number
  heapUsedBytes: number
  eventLoopLagP99Ms: number
  openFiles: number
}

/** @returns 0, or 69 without a server, 77 without a token that may read. */
const top = (options: Options, io: ProcessIo): Promise<number> =>
  reporting('top', io, async () => {
    const seconds = Number(options.interval)
    if (!(seconds >= 0.5 && seconds <= 3600))
      throw new ClientError('--interval must be 0.5 to 3600 seconds', exitCodes.usage)
    const server = await serverOf(options, io)
    const isLive = io.stdout.isTTY === true && options.once !== true && options.json !== true
    for (;;) {
      const view = await viewOf(server)
      if (options.json) printJson(view, io)
      else io.stdout.write(`${isLive ? clearScreen : ''}${toText(view, server, io)}`)
      if (!isLive) return exitCodes.ok
      await sleep(seconds * 1000, undefined, { signal: io.stop }).catch(() => undefined)
      if (io.stop.aborted) return exitCodes.ok
    }
  })

/** Moves to the first line, and erases what is below: https://man7.org/linux/man-pages/man4/console_codes.4.html */
const clearScreen = '\x1b[H\x1b[J'

async function viewOf(server: Server): Promise<View> {
  const [health, now] = await Promise.all([call(server, 'system_get_health'), call(server, 'performance_get_snapshot')])
  return { health, now } as View
}

async function call(server: Server, name: string): Promise<object> {
  const body = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name } }
  const response = await send(server, '/runtime/rpc', { body })
  const { result, error } = (await response.json().catch(() => ({}))) as {
    result?: { structuredContent: object }
    error?: { message: string; data?: { hint: string } }
  }
  if (result) return result.structuredContent
  if (response.status === 401 || response.status === 403) {
    const problem = `an admin token in GLOVEBOX_KEY or --key-file is required: ${error?.message ?? ''}`
    throw new ClientError(problem, exitCodes.noPermission)
  }
  if (error === undefined) throw await toClientError(response)
  throw new ClientError(`the server refused the request: ${error.message}`, exitCodes.software)
}

const styles: Readonly<Record<string, Style>> = { healthy: 'green', warning: 'yellow', critical: 'red' }

function toText({ health, now }: View, { url }: Server, { stdout, env }: ProcessIo): string {
  const { runs, slots, queue, sandboxes, responses, connections, processes, upstreams } = now
  const status = styled(`${health.status} ${health.score}`, styles[health.status] ?? 'bold', stdout, env)
  const count = (name: string) => slots?.[name] ?? 0
  const used = (vitals: Vitals | null) =>
    vitals === null
      ? 'not connected'
      : `${mib(vitals.residentBytes)} resident, ${mib(vitals.heapUsedBytes)} heap, ${vitals.openFiles} files, late ${vitals.eventLoopLagP99Ms} ms`
  const lines: [string, string][] = [
    ['server', `${url}  ${status}`],
    [
      'runs',
      `${queue?.running ?? 0} active, ${queue?.waiting ?? 0} waiting; last 10 min: ${runs.runs} (${listed(runs.by_ending)})`,
    ],
    ['languages', listed(runs.by_language)],
    [
      'latency',
      `p50 ${runs.duration_p50_ms} ms, p99 ${runs.duration_p99_ms} ms; queue p99 ${runs.queue_wait_p99_ms} ms`,
    ],
    [
      'slots',
      slots === null
        ? 'no runner'
        : `${count('busy')} busy, ${count('idle')} idle, ${count('ready')} ready of ${count('max')}; ${count('undying')} cannot be removed`,
    ],
    ['sandboxes', sandboxes === null ? 'no runner' : listed(sandboxes)],
    [
      'requests',
      `${responses.calls} in 10 min, ${responses.failures} failed; ${connections.open} of ${connections.max} connections`,
    ],
    ['front', used(processes.front)],
    ['runner', used(processes.runner)],
    ...upstreams
      .slice(0, upstreamsShown)
      .map(({ name, calls, failures, failing, average_ms }): [string, string] => [
        'upstream',
        `${name}: ${calls} calls, ${failures} failed, ${average_ms} ms${failing > 0 ? `, down for ${failing} calls` : ''}`,
      ]),
    ...health.issues.map(({ severity, code, message }): [string, string] => [severity, `${code}: ${message}`]),
  ]
  const width = Math.max(...lines.map(([name]) => name.length))
  const toLine = ([name, text]: [string, string], at: number) =>
    `${styled(name.padEnd(width), styles[name] ?? 'bold', stdout, env)}  ${at === 0 ? text : printable(text, stdout)}\n`
  return lines.map(toLine).join('')
}

/** More of them would not fit a terminal. */
const upstreamsShown = 10

const mib = (bytes: number): string => `${Math.round(bytes / 1024 / 1024)} MiB`

const listed = (counts: Record<string, number>): string =>
  Object.entries(counts)
    .map(([name, count]) => `${name} ${count}`)
    .join(', ') || 'none'
