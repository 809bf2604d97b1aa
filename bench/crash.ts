import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Glovebox, killIfThere, Place, until } from '../test/support/glovebox.ts'
import { slotsOf, type Traces, tracesOf } from '../test/support/machine.ts'
import { table } from './figures.ts'
import { MixedLoad } from './mixed-load.ts'

const victims = ['front', 'runner', 'guest', 'supervisor'] as const
type Victim = (typeof victims)[number]

export interface Crash {
  rounds: number
  kills: Record<Victim, number>
  calls: number
  /** Answers that were looked for after a kill. */
  answered: number
  /** What was answered and was not there. */
  lost: string[]
  /** What a round left behind. */
  left: string[]
  seconds: number
}

const flags = [
  ...['--storage-reserve', '0', '--limit-thread', '16MiB', '--thread-idle-s', '1', '--front-grace-s', '1'],
  ...['--outbound-allow', '127.0.0.1', '--slot-idle-s', '2'],
]
/** When a process is killed after a round has begun; any moment of a call is as likely as any other. */
const killWithinMs = 1_500
const settledWithinMs = 60_000

/**
 * Kills a process of the server with SIGKILL under mixed load, again and again, and checks after each kill that nothing
 * is lost that was answered, and nothing left of what was under way.
 */
export async function measureCrashes(rounds: number, report: (done: string) => void): Promise<Crash> {
  const startedMs = performance.now()
  const crash: Crash = {
    ...{ rounds, calls: 0, answered: 0, lost: [], left: [], seconds: 0 },
    kills: { front: 0, runner: 0, guest: 0, supervisor: 0 },
  }
  const place = new Place()
  const before = tracesOf(place)
  const load = await MixedLoad.open()
  let server = await place.start(...flags)
  try {
    for (let round = 0; round < rounds; round++) {
      const victim = victims[round % victims.length]!
      server = await crashOnce(place, server, load, victim)
      crash.kills[victim] += 1
      crash.answered += load.facts.length
      crash.lost.push(...(await load.missing(server.url)).map((problem) => `after a kill of the ${victim}: ${problem}`))
      crash.left.push(...(await settled(place)).map((problem) => `after a kill of the ${victim}: ${problem}`))
      if ((round + 1) % 10 === 0) report(`${round + 1} crash rounds`)
    }
    await server.stop()
    crash.left.push(...difference(before, tracesOf(place)))
  } finally {
    load.close()
    await place.remove()
  }
  return { ...crash, calls: load.calls, seconds: (performance.now() - startedMs) / 1000 }
}

/** @returns the server that is ready afterwards; another one if the supervisor was killed. */
async function crashOnce(place: Place, server: Glovebox, load: MixedLoad, victim: Victim): Promise<Glovebox> {
  const stop = new AbortController()
  let now = server
  const loading = load.run(() => now.url, stop.signal)
  await sleep(Math.random() * killWithinMs)
  const pid = pidOf(place, server, victim)
  if (pid !== undefined) killIfThere(pid)
  if (victim === 'supervisor') {
    await server.exited
    now = await place.start(...flags)
  } else {
    await until(async () => (await now.readiness()) === 200, 'it is ready again', settledWithinMs)
  }
  stop.abort()
  await loading
  await now.ready()
  return now
}

/** A guest of any slot; none when there is no slot at this moment. */
function pidOf(place: Place, server: Glovebox, victim: Victim): number | undefined {
  switch (victim) {
    case 'front':
      return server.frontPid
    case 'runner':
      return server.runnerPid
    case 'supervisor':
      return server.supervisorPid
    case 'guest': {
      const guests = slotsOf(place).flatMap(({ guestPid }) => guestPid ?? [])
      return guests[Math.floor(Math.random() * guests.length)]
    }
  }
}

/** Waits until everything that was under way has its ending. @returns what did not get one in time. */
async function settled(place: Place): Promise<string[]> {
  let open: string[] = []
  const isSettled = () => {
    open = unsettled(place)
    return open.length === 0
  }
  await until(isSettled, 'everything has its ending', settledWithinMs).catch(() => undefined)
  return open
}

function unsettled(place: Place): string[] {
  const slots = slotsOf(place).length
  const { idLeases, containers } = tracesOf(place)
  const rows = unfinishedRows(place)
  return [
    ...(rows === 0 ? [] : [`${rows} rows in unfinished states`]),
    ...(idLeases.length === slots ? [] : [`${idLeases.length} id ranges for ${slots} slots`]),
    ...(containers.length === slots ? [] : [`${containers.length} containers for ${slots} slots`]),
  ]
}

function unfinishedRows(place: Place): number {
  const database = new DatabaseSync(join(place.directory, 'home', 'front', 'glovebox.db'), { readOnly: true })
  try {
    const counts = database
      .prepare(`
        select (select count(*) from runs where finished_at is null)
          + (select count(*) from threads where locked_by is not null or state is not null)
          + (select count(*) from deliveries where status in ('waiting', 'due')) as open`)
      .get()
    return Number(counts?.open)
  } finally {
    database.close()
  }
}

/** Everything except files: those of the home are meant to stay. */
export function difference(before: Traces, after: Traces): string[] {
  const names = (Object.keys(before) as (keyof Traces)[]).filter((name) => name !== 'files')
  return names.flatMap((name) => {
    const known = new Set(before[name])
    return after[name].filter((line) => !known.has(line)).map((line) => `at the end: ${name}: ${line}`)
  })
}

export function crashPart({ rounds, kills, calls, answered, lost, left, seconds }: Crash): string {
  const header = [
    'crash rounds',
    ...victims.map((victim) => `kills of the ${victim}`),
    'calls',
    'answers checked',
    'lost',
    'left',
  ]
  const row = [rounds, ...victims.map((victim) => kills[victim]), calls, answered, lost.length, left.length].map(String)
  return [
    '## Crashes',
    '',
    table(header, [row]),
    '',
    `SIGKILL at a random moment under mixed load: runs, tools, threads, uploads, webhooks, idempotency keys; ${Math.round(seconds)} s.`,
    ...[...lost, ...left].slice(0, 50).map((problem) => `- ${problem}`),
  ].join('\n')
}
