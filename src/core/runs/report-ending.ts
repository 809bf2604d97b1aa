import type { Ending, RunResult } from '../../base/run.ts'
import type { Log } from '../../observe/log.ts'
import type { Metrics } from '../../observe/metrics.ts'
import type { RunRow } from '../../store/store.ts'
import type { RunChanges } from './run-changes.ts'

/** Where the end of a run is reported. */
export interface EndingReports {
  metrics: Pick<Metrics, 'ran'>
  log: Pick<Log, 'info'>
  changes: Pick<RunChanges, 'add'>
}

/** Counts a run that has ended, announces it, and logs one line with its ending and its figures. */
export function reportEnding(
  { metrics, log, changes }: EndingReports,
  run: RunRow,
  ending: Ending,
  result: RunResult | null,
  recordMs: number,
): void {
  changes.add(run, 'ended')
  metrics.ran(run, ending.kind, result && { ...result.timings, recordMs }, result?.cpuTimeMs)
  const { id, orgId, keyId, profile, language, threadId } = run
  const { kind, ...detail } = ending
  log.info(
    {
      ...{ trace_id: id, org_id: orgId, key_id: keyId, profile, language, thread_id: threadId },
      ...{ ending: kind, ...('code' in detail && { exit_code: detail.code }) },
      ...('signal' in detail && { signal: detail.signal }),
      ...('reason' in detail && { reason: detail.reason }),
      ...(result && figuresOf(result)),
    },
    'run ended',
  )
}

const figuresOf = ({ durationMs, cpuTimeMs, memoryPeakBytes, oomKills, outputBytes, timings }: RunResult) => ({
  duration_ms: Math.round(durationMs),
  cpu_ms: Math.round(cpuTimeMs),
  memory_peak_bytes: memoryPeakBytes,
  oom_kills: oomKills,
  stdout_bytes: outputBytes.stdout,
  stderr_bytes: outputBytes.stderr,
  queue_ms: Math.round(timings.queueMs),
})
