import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { Agent, get } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { mebibytes, median, quantile, shown, table } from '../figures.ts'
import { Connection } from '../mcp/connection.ts'
import { rssBytesOf } from '../process-figures.ts'
import { type Over, type Peer, startPeers } from './peers.ts'
import { type Kind, kinds, type Listening } from './server.ts'

/** Parts of a budget: what the rate of the gateway divided by another must reach. */
const budgets = { ofBareRelay: 0.85, ofFastestPeer: 4 }

/** One server at one number of connections. */
export interface GatewayFigure {
  server: string
  /** How it reaches its upstream. */
  over: Over
  connections: number
  requestsPerSecond: number
  /** Rate divided by that of the bare relay in the same round, median of the rounds. */
  ofBareRelay: number
  p50Ms: number
  p99Ms: number
}

export interface GatewayFigures {
  figures: GatewayFigure[]
  /** Memory for each of the idle streams, in bytes. */
  streamBytes: { server: string; streams: number; bytesEach: number }[]
}

/** Calls after which the functions of a server are optimized, as they are in one that has run for a while. */
const warmCalls = 20_000
/** Longest time for them; the slower servers are not optimized by then. */
const warmMs = 15_000
const warmConnections = 32

interface Plan {
  rounds: number
  blockMs: number
  streams: number
}

interface Server {
  name: string
  over: Over
  url: URL
  headers: Readonly<Record<string, string>>
}

interface Own extends Listening {
  kind: Kind
  process: ChildProcess
}

const accept = 'application/json, text/event-stream'
const protocol = { accept, 'mcp-protocol-version': '2025-11-25' }
/** Connections of one session need different IDs. */
const callOf = (id: number) =>
  JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'instant', arguments: { text: 'x' } } })

/**
 * Compares the relay of the gateway with a bare relay and with gateways from npm, all in front of the same upstream over HTTP, and
 * with these gateways in front of the same program. Every server is a separate process; blocks alternate, so that all meet the same load of the machine.
 */
export async function measureGateway(plan: Plan, report: (done: string) => void): Promise<GatewayFigures> {
  const directory = mkdtempSync(join(tmpdir(), 'glovebox-bench-gateways-'))
  const own: Own[] = []
  const peers: Peer[] = []
  try {
    for (const kind of kinds) own.push(await launch(kind, own[0]?.urls[0]))
    await startPeers(directory, own[0]!.urls[0]!, peers)
    report('gateways from npm installed')
    const servers = [...own.flatMap(toServers), ...(await Promise.all(peers.map(connected)))]
    for (const server of servers) await warm(server)
    report('every gateway warmed up')
    const figures: GatewayFigure[] = []
    for (const connections of [1, 32]) figures.push(...(await compare(servers, connections, plan, report)))
    const streamBytes = []
    for (const server of own.filter(({ kind }) => kind !== 'upstream')) {
      streamBytes.push({ server: server.kind, streams: plan.streams, bytesEach: await memoryOfStreams(server, plan) })
    }
    return { figures, streamBytes }
  } finally {
    for (const peer of peers) await peer.stop()
    for (const { process: child } of own) child.kill('SIGKILL')
    rmSync(directory, { recursive: true, force: true })
  }
}

function toServers({ kind, urls: [url = ''], keys: [key], programUrl }: Own): Server[] {
  const headers = { ...protocol, ...(key !== undefined && { authorization: `Bearer ${key}` }) }
  const server = (over: Over, address: string): Server => ({ name: kind, over, url: new URL(address), headers })
  return [server('http', url), ...(programUrl === undefined ? [] : [server('program', programUrl)])]
}

/** Opens a session with a peer. */
async function connected({ name, over, url }: Peer): Promise<Server> {
  const post = (message: object, more: Record<string, string> = {}) =>
    fetch(url, {
      ...{ method: 'POST', headers: { ...protocol, 'content-type': 'application/json', ...more } },
      body: JSON.stringify({ jsonrpc: '2.0', ...message }),
    })
  const clientInfo = { name: 'bench', version: '1' }
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo }
  const first = await post({ id: 0, method: 'initialize', params })
  await first.text()
  const session = first.headers.get('mcp-session-id')
  const headers: Record<string, string> = session === null ? {} : { 'mcp-session-id': session }
  await (await post({ method: 'notifications/initialized' }, headers)).text()
  return { name, over, url: new URL(url), headers: { ...protocol, ...headers } }
}

async function compare(
  servers: readonly Server[],
  connections: number,
  { rounds, blockMs }: Plan,
  report: (done: string) => void,
): Promise<GatewayFigure[]> {
  const cells = servers.map((server) => ({ server, rates: [] as number[], latenciesMs: [] as number[] }))
  for (let round = 0; round < rounds; round++) {
    for (const cell of round % 2 === 0 ? cells : [...cells].reverse()) {
      const { rate, latenciesMs } = await block(cell.server, connections, blockMs)
      cell.rates.push(rate)
      cell.latenciesMs.push(...latenciesMs)
    }
    report(`gateway, ${connections} connections, round ${round + 1} of ${rounds}`)
  }
  const bare = cells.find(({ server }) => server.name === 'bare relay')!
  return cells.map(({ server, rates, latenciesMs }) => ({
    ...{ server: server.name, over: server.over, connections, requestsPerSecond: median(rates) },
    ofBareRelay: median(rates.map((rate, round) => rate / bare.rates[round]!)),
    p50Ms: median(latenciesMs),
    p99Ms: quantile(latenciesMs, 0.99),
  }))
}

/** Sends the calls that are not measured. */
async function warm(server: Server): Promise<void> {
  const startedMs = performance.now()
  for (let calls = 0; calls < warmCalls && performance.now() - startedMs < warmMs; ) {
    calls += (await block(server, warmConnections, 500)).latenciesMs.length
  }
}

/** Sends calls for some time. @throws Error if an answer is not the result of the tool. */
async function block({ name, url, headers }: Server, connections: number, ms: number) {
  const clients = Array.from({ length: connections }, (_, id) => new Connection(url, headers, callOf(id)))
  const latenciesMs: number[] = []
  const startedMs = performance.now()
  await Promise.all(
    clients.map(async (client) => {
      while (performance.now() - startedMs < ms) {
        const askedMs = performance.now()
        const text = await client.ask()
        latenciesMs.push(performance.now() - askedMs)
        if (!text.includes('"text":"x"')) throw new Error(`${name} answered ${text.slice(0, 300)}`)
      }
    }),
  )
  const rate = (latenciesMs.length * 1000) / (performance.now() - startedMs)
  for (const client of clients) client.close()
  return { rate, latenciesMs }
}

/** Opens idle streams, each over a connection of its own. @returns the memory for each. */
async function memoryOfStreams({ urls, keys, process: { pid } }: Own, { streams }: Plan): Promise<number> {
  const before = await settledRss(pid!)
  const agent = new Agent({ keepAlive: false, maxSockets: Number.POSITIVE_INFINITY })
  const opened = await Promise.all(
    Array.from({ length: streams }, async (_, index) => {
      const url = urls[index % urls.length]!
      const key = keys[Math.floor(index / urls.length) % keys.length]
      const headers = { ...protocol, 'mcp-session-id': 'bench', ...(key && { authorization: `Bearer ${key}` }) }
      const request = get(url, { agent, headers })
      const [response] = (await once(request, 'response')) as [import('node:http').IncomingMessage]
      if (response.statusCode !== 200) throw new Error(`a stream was answered with ${response.statusCode}`)
      await once(response, 'data')
      return request
    }),
  )
  const after = await settledRss(pid!)
  for (const request of opened) request.destroy()
  return (after - before) / streams
}

async function settledRss(pid: number): Promise<number> {
  await sleep(2_000)
  return rssBytesOf(pid)
}

const program = fileURLToPath(new URL('server.ts', import.meta.url))

async function launch(kind: Kind, target = ''): Promise<Own> {
  const child = spawn(process.execPath, [program, kind, target], { stdio: ['ignore', 'pipe', 'inherit'] })
  const exited = once(child, 'exit').then(() => {
    throw new Error(`the server ${kind} did not start; its messages are above`)
  })
  exited.catch(() => {})
  const [line] = (await Promise.race([once(createInterface({ input: child.stdout }), 'line'), exited])) as [string]
  return { kind, ...(JSON.parse(line) as Listening), process: child }
}

/** Formats a section of the page. */
export function gatewayPart({ figures, streamBytes }: GatewayFigures): string {
  const header = [
    'relayed call',
    'upstream',
    'connections',
    '÷ bare relay',
    'requests/s',
    'p50 ms',
    'p99 ms',
    'added p50 ms',
    'added p99 ms',
  ]
  const rows = figures.map((figure) => {
    const direct = figures.find(
      ({ server, connections }) => server === 'upstream' && connections === figure.connections,
    )!
    return [
      ...[figure.server, figure.over === 'http' ? 'HTTP' : 'program', String(figure.connections)],
      ...[figure.ofBareRelay, figure.requestsPerSecond, figure.p50Ms, figure.p99Ms].map(shown),
      ...[figure.p50Ms - direct.p50Ms, figure.p99Ms - direct.p99Ms].map(shown),
    ]
  })
  const memory = streamBytes.map(({ server, streams, bytesEach }) => [
    server,
    String(streams),
    shown(bytesEach / 1024),
    mebibytes(bytesEach * streams),
  ])
  return [
    '## Gateway',
    '',
    table(header, rows),
    '',
    ...[32, 1].flatMap((connections) => [budgetLine(figures, connections), programLine(figures, connections)]),
    '',
    table(['idle streams', 'streams', 'KiB each', 'MiB'], memory),
    '',
    'The upstream answers each call at once, with one event. "Bare relay" is `node:http` with undici and nothing else; the',
    'gateway checks a key and adds a credential. Every server is in front of the same upstream over HTTP, and the gateways also in',
    'front of the same program, here without a sandbox. "Bridged" gateways only start programs: they reach HTTP through a second',
    'process of supergateway. The other gateways have one session each. The client shares the processors with all of them.',
  ].join('\n')
}

const isOwn = ({ server }: GatewayFigure): boolean => (kinds as readonly string[]).includes(server)

const fastestOf = (figures: readonly GatewayFigure[]): GatewayFigure =>
  figures.filter((figure) => !isOwn(figure)).toSorted((a, b) => b.requestsPerSecond - a.requestsPerSecond)[0]!

function budgetLine(figures: readonly GatewayFigure[], connections: number): string {
  const at = figures.filter((figure) => figure.connections === connections && figure.over === 'http')
  const fastest = fastestOf(at)
  const { ofBareRelay, requestsPerSecond } = at.find(({ server }) => server === 'gateway')!
  const ofPeer = requestsPerSecond / fastest.requestsPerSecond
  const judged = (value: number, budget: number) =>
    `${shown(value)} (budget ${budget}${value < budget ? ', missed' : ''})`
  return `At ${connections} connections, the gateway reaches ${judged(ofBareRelay, budgets.ofBareRelay)} of the bare relay and ${judged(ofPeer, budgets.ofFastestPeer)} times the fastest other gateway, ${fastest.server}.`
}

function programLine(figures: readonly GatewayFigure[], connections: number): string {
  const at = figures.filter((figure) => figure.connections === connections && figure.over === 'program')
  const fastest = fastestOf(at)
  const own = at.find(({ server }) => server === 'gateway')!
  const ratio = shown(own.requestsPerSecond / fastest.requestsPerSecond)
  return `In front of a program, it reaches ${ratio} times the fastest other gateway, ${fastest.server}.`
}
