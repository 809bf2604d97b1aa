import { setTimeout as sleep } from 'node:timers/promises'
import { quantile } from './figures.ts'
import type { GloveboxServer } from './glovebox-server.ts'
import { programs } from './programs.ts'

export interface OverloadPlan {
  /** Duration of each of the two loads. */
  phaseS: number
  aloneS: number
  capacityS: number
}

/** The responses that one organization received during one load. */
export interface Answered {
  callsPerSecond: number
  served: number
  /** Rejected with a retry delay. */
  refused: number
  /** Anything else: a fault, a refusal without a retry delay, a broken connection. */
  failed: number
  p50Ms: number
  p99Ms: number
}

export interface Overload {
  /** Runs per second when each call starts after the previous one has ended. */
  capacityPerSecond: number
  /** Two organizations, each requesting the full capacity. */
  equal: [Answered, Answered]
  /** One organization with few calls, alone; then beside one that requests nearly twice the capacity. */
  alone: Answered
  light: Answered
  heavy: Answered
}

/** Maximum of parallel runs; lower than the default, so that queues fill as on a saturated machine. */
const places = 4
export const overloadFlags = ['--no-dev', '--runs-max', String(places), '--slot-idle-s', '600']

const lightShare = 0.05
const tickMs = 5

/**
 * Applies a steady load of twice the capacity, from clients that do not wait for one another.
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

/** As many callers as places, of both organizations, each with its next call after its response. */
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

/** Sends calls at a fixed rate, whatever becomes of earlier ones. */
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
