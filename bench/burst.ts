import { setTimeout as sleep } from 'node:timers/promises'
import { quantile } from './figures.ts'
import type { GloveboxServer } from './glovebox-server.ts'
import { bare } from './one-process-per-run.ts'
import { programs } from './programs.ts'

export interface Burst {
  runs: number
  /** Calls that were rejected with a retry delay. */
  refusals: number
  /** Responses that were neither a result nor a refusal with a retry delay. */
  failures: number
  firstMs: number
  p50Ms: number
  lastMs: number
  /** The same number of bare interpreters, all at once. */
  bareLastMs: number
}

const runs = 100
const settleMs = 500

/**
 * Sends many simultaneous calls to a server that is idle. Rejected calls are repeated after the retry delay.
 * @param server freshly started, with default settings.
 */
export async function measureBurst(server: GloveboxServer): Promise<Burst> {
  const { code } = programs.python
  const callBare = bare.callOf(programs.python)
  await callBare()
  await sleep(settleMs)
  const tookMs: number[] = []
  let [refusals, failures] = [0, 0]
  const startedMs = performance.now()
  const one = async () => {
    for (;;) {
      const { status, retryAfterS } = await server.attempt(code, 'python')
      if (status === 503 && retryAfterS !== undefined && retryAfterS > 0) {
        refusals += 1
        await sleep(retryAfterS * 1000)
        continue
      }
      if (status !== 200) failures += 1
      tookMs.push(performance.now() - startedMs)
      return
    }
  }
  await Promise.all(Array.from({ length: runs }, one))
  await sleep(settleMs)
  const bareStartedMs = performance.now()
  await Promise.all(Array.from({ length: runs }, callBare))
  const bareLastMs = performance.now() - bareStartedMs
  const [firstMs, lastMs] = [Math.min(...tookMs), Math.max(...tookMs)]
  return { runs, refusals, failures, firstMs, p50Ms: quantile(tookMs, 0.5), lastMs, bareLastMs }
}
