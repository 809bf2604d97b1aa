import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Glovebox, Place } from '../test/support/glovebox.ts'
import { tracesOf } from '../test/support/machine.ts'
import type { TestUpstream } from '../test/support/upstreams.ts'
import { difference } from './crash.ts'
import { mebibytes, median, shown, table } from './figures.ts'
import { addUpstream } from './mixed-calls.ts'
import { allKinds, MixedLoad } from './mixed-load.ts'
import { memoryOf } from './process-figures.ts'

const measured = [
  'front PSS',
  'runner PSS',
  'front descriptors',
  'runner descriptors',
  'mounts',
  'cgroups',
  'loop devices',
  'id ranges',
] as const
type Measured = (typeof measured)[number]
type Sample = Record<Measured, number>

export interface Soak {
  minutes: number
  calls: number
  failures: number
  /** What was answered and was not there at the end of a minute. */
  lost: string[]
  /** What the server left when it had stopped. */
  left: string[]
  lastFailure?: string
  /** Medians of the first and the last third of the samples. */
  first: Sample
  last: Sample
}

/** Few slots and short times, so that everything is created and removed many times. */
const flags = [
  ...['--storage-reserve', '0', '--limit-thread', '16MiB', '--thread-idle-s', '2', '--slot-idle-s', '5'],
  ...['--slot-max-runs', '50', '--interpreter-max-age-s', '20', '--outbound-allow', '127.0.0.1'],
]
const sampleEveryMs = 2_000
const warmUpMs = 15_000
/** Facts are looked for in between, so that their number stays bounded. */
const roundMs = 20_000

/** Runs a mixed load for minutes, and compares what the server holds at its beginning and at its end. */
export async function measureSoak(minutes: number, report: (done: string) => void): Promise<Soak> {
  const place = new Place()
  const before = tracesOf(place)
  const load = await MixedLoad.open(allKinds)
  let upstream: TestUpstream | undefined
  const samples: Sample[] = []
  const lost: string[] = []
  const left: string[] = []
  const sampler = new AbortController()
  try {
    const server = await place.start(...flags)
    upstream = await addUpstream(place)
    const sampling = sampleUntil(place, server, samples, sampler.signal)
    const endMs = performance.now() + minutes * 60_000
    while (performance.now() < endMs) {
      const leftMs = Math.ceil(Math.min(roundMs, endMs - performance.now()))
      const stop = AbortSignal.timeout(Math.max(1, leftMs))
      await load.run(() => server.url, stop)
      lost.push(...(await load.missing(server.url)))
      report(`${load.calls} calls of the soak`)
    }
    sampler.abort()
    await sampling
    await server.stop()
    left.push(...difference(before, tracesOf(place)))
  } finally {
    sampler.abort()
    load.close()
    upstream?.close()
    await place.remove()
  }
  const third = Math.ceil(samples.length / 3)
  const { calls, failures } = load
  return {
    minutes,
    calls,
    failures,
    lost,
    left,
    ...(load.lastFailure !== undefined && { lastFailure: String(load.lastFailure) }),
    first: medians(samples.slice(0, third)),
    last: medians(samples.slice(-third)),
  }
}

async function sampleUntil(place: Place, server: Glovebox, samples: Sample[], stop: AbortSignal): Promise<void> {
  await sleep(warmUpMs, undefined, { signal: stop }).catch(() => undefined)
  do {
    samples.push(sampleOf(place, server))
    await sleep(sampleEveryMs, undefined, { signal: stop }).catch(() => undefined)
  } while (!stop.aborted)
}

function sampleOf(place: Place, { frontPid, runnerPid }: Glovebox): Sample {
  const { cgroups, loopDevices, idLeases } = tracesOf(place)
  return {
    'front PSS': memoryOf(frontPid).pssBytes,
    'runner PSS': memoryOf(runnerPid).pssBytes,
    'front descriptors': readdirSync(`/proc/${frontPid}/fd`).length,
    'runner descriptors': readdirSync(`/proc/${runnerPid}/fd`).length,
    mounts: readFileSync(`/proc/${runnerPid}/mounts`, 'utf8').split('\n').length,
    cgroups: cgroups.length,
    'loop devices': loopDevices.length,
    'id ranges': idLeases.length,
  }
}

function medians(samples: readonly Sample[]): Sample {
  const of = (name: Measured) => [name, median(samples.map((sample) => sample[name]))] as const
  return Object.fromEntries(measured.map(of)) as Sample
}

export function soakPart({ minutes, calls, failures, lastFailure, lost, left, first, last }: Soak): string {
  const text = (name: Measured, value: number) => (name.endsWith('PSS') ? `${mebibytes(value)} MiB` : shown(value))
  const rows = measured.map((name) => [
    ...[name, text(name, first[name]), text(name, last[name])],
    first[name] === 0 ? '' : shown(last[name] / first[name]),
  ])
  return [
    '## Soak',
    '',
    table(['held by the server', 'first third', 'last third', 'last ÷ first'], rows),
    '',
    `${shown(minutes)} minutes of mixed load: ${calls} calls, ${failures} of them failed; ${lost.length} answers were not there later, ${left.length} traces were left when it had stopped.`,
    'Runs, tools, threads, uploads, webhooks, idempotency keys, commands and code in sandboxes, workspaces, an upstream, and',
    'sandboxes that are created and deleted.',
    ...(lastFailure === undefined ? [] : [`The last failure: ${lastFailure}`]),
    ...[...lost, ...left].slice(0, 50).map((problem) => `- ${problem}`),
  ].join('\n')
}
