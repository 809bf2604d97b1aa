/** Compares the network of a jail with a direct connection and with proxies, and runs without a network with others. */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, openSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Worker } from 'node:worker_threads'
import { pino } from 'pino'
import { Egress } from '../src/egress/client.ts'
import { proxyPort } from '../src/egress/protocol.ts'
import { median, quantile, shown, table } from './figures.ts'
import { GloveboxServer } from './glovebox-server.ts'
import { startSquid, startTinyproxy } from './network-proxies.ts'

const client = join(import.meta.dirname, 'network-client.ts')
const program = join(import.meta.dirname, '../src/main.ts')
const host = '127.0.0.1'

export interface NetworkPlan {
  rounds: number
  /** Of one transfer. */
  transferBytes: number
  /** Runs of each server. */
  runs: number
}

interface Measured {
  /** MiB/s. */
  rate: number
  /** Of one byte, in milliseconds. */
  roundTrip: number
  /** Until it can be used, in milliseconds. */
  connection: number
}

export interface NetworkFigures {
  /** By way; a proxy that could not be had is absent. */
  ways: Record<string, Measured[]>
  /** Milliseconds of warm runs that use no network, by what their server allows. */
  unused: Record<string, number[]>
}

export async function measureNetwork(plan: NetworkPlan, report: (done: string) => void): Promise<NetworkFigures> {
  const ways = await measureWays(plan)
  report('network pipe')
  const unused = await measureUnused(plan.runs)
  report('runs without a network')
  return { ways, unused }
}

async function measureWays({ rounds, transferBytes }: NetworkPlan): Promise<NetworkFigures['ways']> {
  const directory = mkdtempSync(join(tmpdir(), 'glovebox-network-'))
  const peer = new Worker(endlessServer, { eval: true })
  const port = String(((await once(peer, 'message')) as [number])[0])
  const proxies = { tinyproxy: await startTinyproxy(directory), squid: await startSquid(directory) }
  const holder = await namespaceHolder()
  const egress = new Egress([process.execPath, program, 'broker'], pino({ level: 'silent' }))
  const limits = { connections: 4096, bytes: 0, bytesPerSecond: 0 }
  const owner = { kind: 'run', orgId: 'org', keyId: 'key' } as const
  const jail = egress.jail({ policy: 'allow', rules: [`${host}:${port}`], limits }, owner)
  try {
    await jail.open(openSync(`/proc/${holder.pid}/ns/net`, 'r'))
    const measure = async (before: readonly string[], through: number): Promise<Measured> => {
      const words = [process.execPath, client, host, port, `${through}`, `${transferBytes}`]
      const [command = '', ...args] = [...before, ...words]
      return JSON.parse((await promisify(execFile)(command, args)).stdout) as Measured
    }
    const ways: Record<string, () => Promise<Measured>> = { direct: () => measure([], 0) }
    for (const [name, proxy] of Object.entries(proxies)) if (proxy) ways[name] = () => measure([], proxy.port)
    ways.jail = () => measure(['nsenter', `--net=/proc/${holder.pid}/ns/net`, '--'], proxyPort)
    const results: NetworkFigures['ways'] = Object.fromEntries(Object.keys(ways).map((name) => [name, []]))
    for (let round = 0; round < rounds; round++)
      for (const [name, way] of Object.entries(ways)) results[name]?.push(await way())
    return results
  } finally {
    await jail.close()
    await egress.close()
    holder.kill('SIGKILL')
    for (const proxy of Object.values(proxies)) await proxy?.stop()
    await peer.terminate()
    rmSync(directory, { recursive: true, force: true })
  }
}

/** In a thread, as another program: sends without end after `d`, and answers every `e` with one byte. */
const endlessServer = `
  const { parentPort } = require('node:worker_threads')
  const block = Buffer.alloc(256 * 1024)
  require('node:net').createServer({ noDelay: true }, (socket) => {
    socket.on('error', () => socket.destroy())
    const send = () => { while (socket.writable && socket.write(block)); }
    socket.on('data', (piece) => {
      if (piece[0] === 101) return void socket.write('e')
      socket.on('drain', send)
      send()
    })
  }).listen(0, '${host}', function () { parentPort.postMessage(this.address().port) })`

/** A process that holds a network namespace. */
async function namespaceHolder(): Promise<ChildProcess> {
  const holder = spawn('unshare', ['--net', 'sh', '-c', 'ip link set lo up; echo up; exec sleep 3600'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  await once(holder.stdout!, 'data')
  return holder
}

/** Two servers without a network show the noise; that of a third one could be used. */
async function measureUnused(runs: number): Promise<NetworkFigures['unused']> {
  const flags = { none: [], 'none again': [], public: ['--network', 'public'] }
  const servers: [string, GloveboxServer][] = []
  try {
    for (const [name, own] of Object.entries(flags)) servers.push([name, await GloveboxServer.start(own)])
    const unused: NetworkFigures['unused'] = Object.fromEntries(servers.map(([name]) => [name, []]))
    for (let run = 0; run <= runs; run++) {
      for (const [name, server] of servers) {
        const startedMs = performance.now()
        await server.callTool('true', 'bash')
        // The first one creates the slot.
        if (run > 0) unused[name]?.push(performance.now() - startedMs)
      }
    }
    return unused
  } finally {
    for (const [, server] of servers) await server.stop()
  }
}

export function networkPart({ ways, unused }: NetworkFigures): string {
  const of = (name: string, field: keyof Measured) => median((ways[name] ?? []).map((one) => one[field]))
  const fastest = Math.max(...['tinyproxy', 'squid'].filter((name) => ways[name]).map((name) => of(name, 'rate')))
  const rows = Object.keys(ways).map((name) => [
    name,
    shown(of(name, 'rate') / fastest),
    shown(of(name, 'rate')),
    ...[of(name, 'roundTrip'), of(name, 'connection')].map(shown),
    shown(of(name, 'roundTrip') - of('direct', 'roundTrip')),
  ])
  const base = median(unused.none ?? [])
  const unusedRows = Object.entries(unused).map(([name, ms]) => [
    name,
    shown(median(ms) / base),
    ...[median(ms), quantile(ms, 0.25), quantile(ms, 0.75)].map(shown),
  ])
  return [
    '## Network',
    '',
    table(['way', '÷ the faster proxy', 'MiB/s', 'round trip, ms', 'new connection, ms', 'added, ms'], rows),
    '',
    'One transfer, one byte there and back, and a new connection by HTTP CONNECT, from a client in a network namespace of its own',
    'through the broker, and on the machine directly and through proxies of Debian. Medians of rounds, in turn.',
    '',
    table(['policy of a run that uses no network', '÷ none', 'p50 ms', 'lower quartile', 'upper quartile'], unusedRows),
    '',
    'Warm `bash` runs of three servers in turn. Two have the same policy and show how far such figures differ by chance.',
  ].join('\n')
}
