import type { Ending } from './run.ts'

/** The status of a run in REST responses and filters. */
export const executionStatuses = ['running', 'success', 'failed', 'timeout', 'oom', 'cancelled'] as const
export type ExecutionStatus = (typeof executionStatuses)[number]

/** How the result of a run is delivered. `polling`: the client fetches it. */
export const deliveryModes = ['inline', 'streaming', 'webhook', 'polling'] as const
export type DeliveryMode = (typeof deliveryModes)[number]

export function statusOf(ending: Ending): Exclude<ExecutionStatus, 'running'> {
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
