import { fork } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Glovebox, Place } from '../test/support/glovebox.ts'
import { newKey } from '../test/support/keys.ts'
import { quantile, shown, table } from './figures.ts'
import type { HostileWork, Tally } from './hostile-attack.ts'
import { attacks } from './hostile-attacks.ts'

export interface HostilePlan {
  /** Duration of each measurement, alone and beside each hostile key. */
  phaseS: number
  /** Rows in the history that is searched. */
  historyRows: number
  /** Parts of the names of the attacks that are measured; absent: all. */
  attacks?: readonly string[]
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
/** After an attack, until what it left has ended. */
const settleMs = 4_000
/** A call that takes longer has failed. */
const callWithinMs = 30_000

interface Target {
  server: Glovebox
  headers: Record<string, string>
}

/** Measures the latency of a good key alone, and beside a key of another organization that does its worst. */
export async function measureHostile(plan: HostilePlan, report: (done: string) => void): Promise<HostileRow[]> {
  const place = new Place()
  const config = join(place.directory, 'config.yaml')
  writeFileSync(config, 'profiles: { connected: { network: allow, network_allow: [example.invalid] } }\n')
  const server = await place.start('--no-dev', '--storage-reserve', '0', '--limit-thread', '16MiB', '--config', config)
  try {
    const good = { server, headers: (await newKey(place, '--org', 'good')).headers }
    const flags = ['--org', 'hostile', '--profile', 'connected', '--config', config]
    const bad = { server, headers: (await newKey(place, ...flags)).headers }
    await call(good)
    await call(bad)
    extendHistory(place, plan.historyRows)
    const alone = async () => ({ hostile: '(alone)', ...(await measure(good, plan.phaseS)), attempts: 0, refused: 0 })
    const rows = [await alone()]
    const wanted = Object.keys(attacks).filter((name) => plan.attacks?.some((word) => name.includes(word)) ?? true)
    for (const attack of wanted) {
      rows.push(await measureBeside(attack, good, bad, plan.phaseS))
      report(`beside ${attack}`)
      await sleep(settleMs)
    }
    return [...rows, await alone()]
  } finally {
    await place.remove()
  }
}

async function measureBeside(attack: string, good: Target, bad: Target, seconds: number): Promise<HostileRow> {
  const { url, port } = bad.server
  const work: HostileWork = { attack, url, port, headers: bad.headers }
  const hostile = fork(new URL('./hostile-worker.ts', import.meta.url), [JSON.stringify(work)], { detached: true })
  const tallied = Promise.race([once(hostile, 'message'), once(hostile, 'exit').then(([code]) => failed(attack, code))])
  tallied.catch(() => undefined)
  await sleep(1_000)
  const measured = await measure(good, seconds)
  hostile.send('stop')
  const [tally] = (await tallied) as [Tally]
  return { hostile: attack, ...measured, ...tally }
}

function failed(attack: string, code: number | null): never {
  throw new Error(`the process of the attack ${attack} ended with ${code}`)
}

/** Calls at a fixed rate, whatever becomes of earlier calls. */
async function measure(good: Target, seconds: number): Promise<Omit<HostileRow, 'hostile' | keyof Tally>> {
  const tookMs: number[] = []
  let failed = 0
  const callOnce = async () => {
    const calledMs = performance.now()
    const isServed = await call(good).catch(() => false)
    if (isServed) tookMs.push(performance.now() - calledMs)
    else failed += 1
  }
  const calls: Promise<void>[] = []
  const startedMs = performance.now()
  while (performance.now() - startedMs < seconds * 1000) {
    calls.push(callOnce())
    await sleep(1000 / callsPerSecond)
  }
  await Promise.all(calls)
  return { calls: calls.length, failed, p50Ms: quantile(tookMs, 0.5), p99Ms: quantile(tookMs, 0.99) }
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

export function hostilePart(rows: readonly HostileRow[]): string {
  const alone = Math.max(...rows.filter(({ hostile }) => hostile === '(alone)').map(({ p99Ms }) => p99Ms))
  const header = ['beside', 'p99 ÷ alone', 'p50 ms', 'p99 ms', 'calls', 'failed', 'hostile attempts', 'refused']
  const cells = rows.map((row) => [
    ...[row.hostile, shown(row.p99Ms / alone), shown(row.p50Ms), shown(row.p99Ms)],
    ...[row.calls, row.failed, row.attempts, row.refused].map(String),
  ])
  return [
    '## A good key beside a hostile one',
    '',
    table(header, cells),
    '',
    `The good key runs \`${callBody.code}\` in bash ${callsPerSecond} times a second; the hostile key belongs to another organization.`,
    'Alone was measured before and after the others; the larger p99 counts. The hostile client stands for a machine of its',
    'own: it gets the processor time that the server and the good client leave. "Runs that compute" is what an ordinary',
    'neighbor costs.',
  ].join('\n')
}
