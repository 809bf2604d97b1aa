import { timestamp } from '../../base/clock.ts'
import type { Ending } from '../../base/run.ts'
import type { Transcript } from '../../core/fold.ts'
import { endingInWords, exitCodeOf } from '../../tools/execute/ending-words.ts'
import { succeeded, toStructuredContent } from '../../tools/execute/result.ts'

export type ExecutionStatus = 'success' | 'failed' | 'timeout' | 'oom' | 'cancelled'

/** A finished run as REST clients read it; besides the common fields it carries everything the tool answers. */
export function toExecution(
  transcript: Transcript,
  createdAt: string,
  deliveryMode: 'inline' | 'streaming',
): Record<string, unknown> {
  const { result, stdout, stderr } = transcript
  const success = succeeded(result.ending)
  return {
    ...toStructuredContent(transcript),
    success,
    status: statusOf(result.ending),
    exit_code: exitCodeOf(result.ending),
    error: success ? null : endingInWords(result.ending),
    truncated: stdout.omittedBytes + stderr.omittedBytes > 0,
    created_at: createdAt,
    completed_at: timestamp(),
    delivery_mode: deliveryMode,
  }
}

function statusOf(ending: Ending): ExecutionStatus {
  switch (ending.kind) {
    case 'exited':
      return ending.code === 0 ? 'success' : 'failed'
    case 'timed_out':
      return 'timeout'
    case 'out_of_memory':
      return 'oom'
    case 'cancelled':
      return 'cancelled'
    case 'signaled':
    case 'output_limit':
    case 'disk_quota':
    case 'shutdown':
    case 'failed':
      return 'failed'
  }
}
