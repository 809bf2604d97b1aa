import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs } from '../base/clock.ts'
import { Refusal } from '../base/errors.ts'
import type { CallPolicy } from '../base/profile.ts'
import type { ToolResult } from '../tools/tool.ts'
import { errorResult } from './tool-errors.ts'

/** Short beside any run, long beside the look at one row. */
const lookEveryMs = 100

/**
 * Calls a tool whose thread may be running something else, and answers that as the profile wants it. A call that was
 * refused for that has had no effect, so it can be made again.
 */
export async function whenFree(
  { onBusyThread, busyWaitMs }: CallPolicy,
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
      const isCancelled = await sleep(lookEveryMs, false, { ref: false, signal }).catch(() => true)
      if (isCancelled) throw error
    }
  }
}
