import { setTimeout as sleep } from 'node:timers/promises'
import { quantile } from './figures.ts'
import type { GloveboxServer } from './glovebox-server.ts'
import { programs } from './programs.ts'

export interface OverloadPlan {
  /** Each of the two loads. */
  phaseS: number
  aloneS: number
  capacityS: number
}

/** What one org was answered during one load. */
export interface Answered {
  callsPerSecond: number
  served: number
  /** Told to come again, and when. */
  refused: number
  /** Anything else: a fault, a refusal that does not say when, a connection that broke. */
  failed: number
  p50Ms: number
  p99Ms: number
}

export interface Overload {
  /** Runs per second that were served when each was asked for as the one before had ended. */
  capacityPerSecond: number
  /** Two orgs, each asking for all that there is. */
  equal: [Answered, Answered]
  /** One that asks for a little, alone; then beside one that asks for nearly twice what there is. */
  alone: Answered
  light: Answered
  heavy: Answered
}

/** Places in which runs go on at once; fewer than by default, so that queues fill as on a machine that is full. */
const places = 4
export const overloadFlags = ['--no-dev', '--runs-max', String(places), '--slot-idle-s', '600']

const lightShare = 0.05
const tickMs = 5

/**
 * A steady load of twice what the server can do, from clients that do not wait for one another.
 * @param server started with `overloadFlags`.
 */
export async function measureOverload(server: GloveboxServer, plan: OverloadPlan): Promise<Overload> {
  const keys = [await server.newKey('one'), await server.newKey('two')] as const
  await capacityOf(server, keys, 1)
  const capacityPerSecond = await capacityOf(server, keys, plan.capacityS)
  const load = (key: string, share: number, seconds: number) =>
    callSteadily(server, key, capacityPerSecond * share, seconds)
  const alone = await load(keys[1], lightShare, plan.aloneS)
  const equal = await Promise.all([load(keys[0], 1, plan.phaseS), load(keys[1], 1, plan.phaseS)])
  const [heavy, light] = await Promise.all([
    load(keys[0], 2 - lightShare, plan.phaseS),
    load(keys[1], lightShare, plan.phaseS),
  ])
  return { capacityPerSecond, equal, alone, light, heavy }
}

/** As many callers as places, of both orgs, each with its next call when it has its answer. */
async function capacityOf(server: GloveboxServer, keys: readonly string[], seconds: number): Promise<number> {
  const startedMs = performance.now()
  let served = 0
  const caller = async (_: unknown, index: number) => {
    while (performance.now() - startedMs < seconds * 1000) {
      const { status } = await server.attempt(programs.python.code, 'python', keys[index % keys.length])
      if (status !== 200) throw new Error(`a call within what there is was answered ${status}`)
      served += 1
    }
  }
  await Promise.all(Array.from({ length: places }, caller))
  return (served * 1000) / (performance.now() - startedMs)
}

/** Calls at a rate, whatever becomes of those before. */
async function callSteadily(
  server: GloveboxServer,
  key: string,
  callsPerSecond: number,
  seconds: number,
): Promise<Answered> {
  const answered: Answered = { callsPerSecond, served: 0, refused: 0, failed: 0, p50Ms: 0, p99Ms: 0 }
  const tookMs: number[] = []
  const call = async () => {
    const calledMs = performance.now()
    const { status, retryAfterS } = await server
      .attempt(programs.python.code, 'python', key)
      .catch(() => ({ status: 0, retryAfterS: undefined }))
    if (status === 200) {
      answered.served += 1
      tookMs.push(performance.now() - calledMs)
    } else if (status === 503 && retryAfterS !== undefined && retryAfterS > 0) answered.refused += 1
    else answered.failed += 1
  }
  const calls: Promise<void>[] = []
  const startedMs = performance.now()
  for (let elapsedS = 0; elapsedS < seconds; elapsedS = (performance.now() - startedMs) / 1000) {
    while (calls.length < elapsedS * callsPerSecond) calls.push(call())
    await sleep(tickMs)
  }
  await Promise.all(calls)
  return { ...answered, p50Ms: quantile(tookMs, 0.5), p99Ms: quantile(tookMs, 0.99) }
}
