import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs } from '../base/clock.ts'
import { Refusal } from '../base/errors.ts'
import type { CallPolicy } from '../base/profile.ts'
import type { ToolResult } from '../tools/tool.ts'
import { errorResult } from './tool-errors.ts'

/** Short beside the time of a run, long beside the query of one row. */
const retryEveryMs = 100

/**
 * Calls a tool and applies the profile's policy when its thread is busy: throws the refusal, returns it as a result, or
 * retries for up to `busyWaitMs`. Retrying is safe, since a call that was refused had no effect.
 * @throws Refusal `thread_busy`, or what the tool throws.
 */
export async function retryWhileThreadBusy(
  { onBusyThread, busyWaitMs }: Pick<CallPolicy, 'onBusyThread' | 'busyWaitMs'>,
  signal: AbortSignal,
  call: () => Promise<ToolResult>,
): Promise<ToolResult> {
  const untilMs = monotonicMs() + (onBusyThread === 'wait' ? busyWaitMs : 0)
  for (;;) {
    try {
      return await call()
    } catch (error) {
      if (!(error instanceof Refusal) || error.code !== 'thread_busy') throw error
      if (onBusyThread === 'result') return errorResult(error)
      if (monotonicMs() >= untilMs) throw error
      const isCancelled = await sleep(retryEveryMs, false, { ref: false, signal }).catch(() => true)
      if (isCancelled) throw error
    }
  }
}
