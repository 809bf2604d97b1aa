import { once } from 'node:events'
import { Agent, type ClientRequest, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { post } from '../test/support/calls.ts'
import { type Glovebox, Place } from '../test/support/glovebox.ts'
import { newKey } from '../test/support/keys.ts'
import { quantile, shown, table } from './figures.ts'

export interface HostilePlan {
  /** Duration of each measurement, alone and beside each hostile key. */
  phaseS: number
  /** Rows in the history that is searched. */
  historyRows: number
}

export interface HostileRow {
  hostile: string
  /** Calls of the good key, and those of them that failed. */
  calls: number
  failed: number
  p50Ms: number
  p99Ms: number
  /** Requests of the hostile key, and how many of them were refused. */
  attempts: number
  refused: number
}

/** The good key calls this often, whatever becomes of earlier calls. */
const callsPerSecond = 5
/** A call that takes longer has failed. */
const callWithinMs = 30_000
const manyStreams = 20_000
/** Connections that this process can have open, besides its files. */
const openMax = 8_000

interface Target {
  server: Glovebox
  headers: Record<string, string>
}

interface Tally {
  attempts: number
  refused: number
}

type Attack = (target: Target, tally: Tally, stop: AbortSignal) => Promise<void>

const attacks: Readonly<Record<string, Attack>> = {
  'ids of 4 MB': bigIds,
  '20,000 streams': streams,
  'slow uploads': slowUploads,
  'searches without a match': searches,
}

/** Measures the latency of a good key alone, and beside a key of another organization that does its worst. */
export async function measureHostile(plan: HostilePlan, report: (done: string) => void): Promise<HostileRow[]> {
  const place = new Place()
  const server = await place.start('--no-dev', '--storage-reserve', '0', '--limit-thread', '16MiB')
  try {
    const good = { server, headers: (await newKey(place, '--org', 'good')).headers }
    const bad = { server, headers: (await newKey(place, '--org', 'hostile')).headers }
    await call(good)
    await call(bad)
    extendHistory(place, plan.historyRows)
    const rows = [await measureBeside('(alone)', async () => {}, good, bad, plan.phaseS)]
    for (const [name, attack] of Object.entries(attacks)) {
      rows.push(await measureBeside(name, attack, good, bad, plan.phaseS))
      report(`beside ${name}`)
    }
    return rows
  } finally {
    await place.remove()
  }
}

async function measureBeside(
  hostile: string,
  attack: Attack,
  good: Target,
  bad: Target,
  seconds: number,
): Promise<HostileRow> {
  const tally = { attempts: 0, refused: 0 }
  const stop = new AbortController()
  const attacking = attack(bad, tally, stop.signal)
  await sleep(1_000)
  const tookMs: number[] = []
  let failed = 0
  const measure = async () => {
    const calledMs = performance.now()
    const isServed = await call(good).catch(() => false)
    if (isServed) tookMs.push(performance.now() - calledMs)
    else failed += 1
  }
  const calls: Promise<void>[] = []
  const startedMs = performance.now()
  while (performance.now() - startedMs < seconds * 1000) {
    calls.push(measure())
    await sleep(1000 / callsPerSecond)
  }
  await Promise.all(calls)
  stop.abort()
  await attacking
  const [p50Ms, p99Ms] = [quantile(tookMs, 0.5), quantile(tookMs, 0.99)]
  return { hostile, calls: calls.length, failed, p50Ms, p99Ms, ...tally }
}

const callBody = { language: 'bash', code: 'true' }

async function call({ server, headers }: Target): Promise<boolean> {
  const response = await fetch(`${server.url}/v1/sandbox/execute`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify(callBody),
    signal: AbortSignal.timeout(callWithinMs),
  })
  await response.arrayBuffer()
  return response.status === 200
}

/** Copies the one run of the history, which is faster than running code so often. */
function extendHistory(place: Place, rows: number): void {
  const database = new DatabaseSync(join(place.directory, 'home', 'front', 'glovebox.db'), { timeout: 10_000 })
  try {
    const columns = database
      .prepare('select name from pragma_table_info(?)')
      .all('runs')
      .map(({ name }) => String(name))
    const values = columns.map((name) => (name === 'id' ? `'trc_bench' || n` : name))
    database.exec(`
      with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < ${rows})
      insert into runs (${columns.join(', ')})
      select ${values.join(', ')} from numbers, (select * from runs order by created_at desc limit 1)`)
  } finally {
    database.close()
  }
}

/** Repeats an attempt from several connections at once. */
async function repeat(tally: Tally, stop: AbortSignal, atOnce: number, attempt: () => Promise<number>): Promise<void> {
  const worker = async () => {
    while (!stop.aborted) {
      tally.attempts += 1
      const status = await attempt().catch(() => 0)
      if (status >= 400) tally.refused += 1
      if (status === 0) await sleep(20)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, worker))
}

function bigIds({ server, headers }: Target, tally: Tally, stop: AbortSignal): Promise<void> {
  const id = 'x'.repeat(4_000_000)
  const body = JSON.stringify({ jsonrpc: '2.0', id, method: 'subscriptions/listen', params: { notifications: {} } })
  const more = {
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'subscriptions/listen',
    accept: 'text/event-stream',
  }
  return repeat(tally, stop, 8, async () => (await post(`${server.url}/mcp`, body, { ...headers, ...more })).status)
}

/** Opens streams until the server or this process has no more connections, and opens those anew that were refused. */
async function streams({ server, headers }: Target, tally: Tally, stop: AbortSignal): Promise<void> {
  const agent = new Agent({ keepAlive: false, maxSockets: openMax })
  const open = new Set<ClientRequest>()
  const openOne = () => {
    tally.attempts += 1
    const sent = request(`${server.url}/mcp`, { agent, headers: { ...headers, accept: 'text/event-stream' } })
    open.add(sent)
    sent.once('response', (response) => {
      if (response.statusCode !== 200) tally.refused += 1
      response.resume()
    })
    sent.once('error', () => undefined)
    sent.once('close', () => open.delete(sent))
    sent.end()
  }
  while (!stop.aborted) {
    for (let n = 0; n < 100 && open.size < openMax && tally.attempts < manyStreams; n++) openOne()
    await sleep(20)
  }
  for (const sent of open) sent.destroy()
  agent.destroy()
}

/** Uploads of 10 GiB whose bytes arrive one a second. */
async function slowUploads({ server, headers }: Target, tally: Tally, stop: AbortSignal): Promise<void> {
  const size = 10 * 2 ** 30
  const begin = async (n: number): Promise<Socket | undefined> => {
    const file = { source: 'thread', id: `slow-${n}`, path: 'f', size }
    tally.attempts += 1
    const answer = await post<{ url: string }>(`${server.url}/v1/files/upload`, file, headers)
    if (answer.status !== 200) {
      tally.refused += 1
      return undefined
    }
    const { pathname, host } = new URL(answer.body.url)
    const socket = connect(server.port, '127.0.0.1').on('error', () => undefined)
    await once(socket, 'connect')
    socket.write(`PUT ${pathname} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${size}\r\n\r\n`)
    socket.once('data', () => (tally.refused += 1))
    return socket
  }
  const sockets = new Map<number, Socket | undefined>()
  while (!stop.aborted) {
    for (let n = 0; n < 16; n++) {
      const socket = sockets.get(n)
      if (socket === undefined || socket.destroyed || !socket.writable) sockets.set(n, await begin(n))
      else socket.write('x')
    }
    await sleep(1_000, undefined, { signal: stop }).catch(() => undefined)
  }
  for (const socket of sockets.values()) socket?.destroy()
}

function searches({ server, headers }: Target, tally: Tally, stop: AbortSignal): Promise<void> {
  const paths = ['?metadata.nothing=none', '?status=running', '?thread_id=none&status=failed', '?language=node']
  let n = 0
  return repeat(tally, stop, 8, async () => {
    const response = await fetch(`${server.url}/v1/executions${paths[n++ % paths.length]}`, { headers })
    await response.arrayBuffer()
    return response.status
  })
}

export function hostilePart(rows: readonly HostileRow[]): string {
  const [alone] = rows
  const header = ['beside', 'p99 ÷ alone', 'p50 ms', 'p99 ms', 'calls', 'failed', 'hostile attempts', 'refused']
  const cells = rows.map((row) => [
    ...[row.hostile, shown(row.p99Ms / alone!.p99Ms), shown(row.p50Ms), shown(row.p99Ms)],
    ...[row.calls, row.failed, row.attempts, row.refused].map(String),
  ])
  return [
    '## A good key beside a hostile one',
    '',
    table(header, cells),
    '',
    `The good key runs \`${callBody.code}\` in bash ${callsPerSecond} times a second; the hostile key belongs to another organization.`,
    'The clients share the processors with the server.',
  ].join('\n')
}
