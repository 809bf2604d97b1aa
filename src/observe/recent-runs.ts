import type { Ending, Language } from '../base/run.ts'
import { Ring } from './ring.ts'

/** What is kept of a run that ended: no ID and nothing that a client chose. */
interface RecentRun {
  atMs: number
  language: Language
  ending: Ending['kind']
  queueMs: number
  totalMs: number
}

/** Runs that the rates and percentiles are computed from. */
const keptRuns = 1_000

/** Figures of the latest runs. */
export interface RunFigures {
  runs: number
  by_ending: Record<string, number>
  by_language: Record<string, number>
  /** Share of runs, 0 to 1. */
  out_of_memory_rate: number
  failure_rate: number
  queue_wait_p50_ms: number
  queue_wait_p99_ms: number
  duration_p50_ms: number
  duration_p99_ms: number
}

/** The latest runs, for rates that react within minutes. */
export class RecentRuns {
  readonly #runs = new Ring<RecentRun>(keptRuns)

  add(run: Omit<RecentRun, 'atMs'>): void {
    this.#runs.add({ ...run, atMs: Date.now() })
  }

  /** @param withinMs earlier runs are left out. */
  figures(withinMs: number): RunFigures {
    const since = Date.now() - withinMs
    const runs = this.#runs.newest().filter(({ atMs }) => atMs >= since)
    const share = (kind: Ending['kind']) =>
      runs.length === 0 ? 0 : runs.filter(({ ending }) => ending === kind).length / runs.length
    const waits = sorted(runs.map(({ queueMs }) => queueMs))
    const durations = sorted(runs.map(({ totalMs }) => totalMs))
    return {
      runs: runs.length,
      by_ending: counted(runs.map(({ ending }) => ending)),
      by_language: counted(runs.map(({ language }) => language)),
      out_of_memory_rate: share('out_of_memory'),
      failure_rate: share('failed'),
      queue_wait_p50_ms: percentile(waits, 0.5),
      queue_wait_p99_ms: percentile(waits, 0.99),
      duration_p50_ms: percentile(durations, 0.5),
      duration_p99_ms: percentile(durations, 0.99),
    }
  }
}

const sorted = (values: number[]): number[] => values.sort((a, b) => a - b)

/** @param values in ascending order. @returns 0 for none. */
export function percentile(values: readonly number[], share: number): number {
  const value = values[Math.min(Math.floor(values.length * share), values.length - 1)] ?? 0
  return Math.round(value * 100) / 100
}

export function counted(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1
  return counts
}
