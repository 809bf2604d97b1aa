import { mebibytes, shown, table } from './figures.ts'
import { type Latency, type LatencyRow, ourCold, ourOwnInterpreter, ourWarm } from './latency.ts'

/** Formats every figure of every way to run a program. */
export function latencyPart({ rows, absent }: Latency): string {
  const header = ['', 'time ÷ bare', 'rate ÷ bare', 'p50 ms', 'p95 ms', 'p99 ms', 'runs/s', 'CPU ms/run', 'MiB', 'runs']
  const missing = Object.entries(absent).map(([name, reason]) => [`not available: ${name}`, `${reason}`])
  const failed = rows.filter(({ failures }) => failures > 0)
  return [
    '## Time of one run',
    '',
    table(header, rows.map(cellsOf)),
    ...(missing.length > 0 ? ['', table(['contender', 'reason'], missing)] : []),
    ...failed.map(({ id, failures }) => `\n**${failures} runs failed: ${id}.**`),
    '',
    '"Bare" is the interpreter spawned from Node without any isolation, under the same load, in the same round; the',
    'quartiles of the rounds are in parentheses. CPU is the processor time of the whole machine per run, including the',
    'client and deferred work of the kernel. MiB is the memory of one idle run of that language: all its processes and',
    'monitors, shared pages counted proportionally. "Own interpreter" starts a new interpreter in a ready slot; "cold',
    'slot" creates a new container for the run. sandbox-runtime is used as a library, initialized once in its own process.',
  ].join('\n')
}

function cellsOf(row: LatencyRow): string[] {
  const load = row.atOnce > 1 ? `, ${row.atOnce} at once` : row.gapMs > 0 ? `, ${row.gapMs} ms gaps` : ''
  const [low, high] = row.timeRatioQuartiles ?? [Number.NaN, Number.NaN]
  const ratio = row.timeRatio === undefined ? '1' : `**${shown(row.timeRatio)}** (${shown(low)}–${shown(high)})`
  return [
    `${row.language}: ${row.contender}${load}`,
    ratio,
    row.rateRatio === undefined ? '1' : shown(row.rateRatio),
    ...[row.p50Ms, row.p95Ms, row.p99Ms, row.runsPerSecond, row.busyCpuMsPerRun].map(shown),
    row.memoryBytes === undefined ? '' : mebibytes(row.memoryBytes),
    String(row.runs),
  ]
}

/**
 * Compares warm runs with the same product without warm slots: a new container for each run (before), and a new
 * interpreter in a ready slot, against the default behavior (after).
 */
export function beforeAndAfterPart(rows: readonly LatencyRow[]): string {
  const warm = rows.filter(({ contender, gapMs }) => contender === ourWarm && gapMs === 0)
  const lines = warm.flatMap((after) =>
    [ourCold, ourOwnInterpreter].flatMap((contender) => {
      const isPair = (row: LatencyRow) =>
        row.contender === contender && row.language === after.language && row.atOnce === after.atOnce && row.gapMs === 0
      const before = rows.find(isPair)
      return before ? [comparison(before, after)] : []
    }),
  )
  if (lines.length === 0) return ''
  const header = ['before → after', 'time ÷', 'p99 ÷', 'rate ×', 'CPU ÷', 'MiB', 'p50 ms', 'p99 ms', 'runs/s']
  return [
    '## Before and after',
    '',
    table(header, lines),
    '',
    'Before is a new OCI container for each run ("cold slot"), or a new interpreter in a ready slot; after is the default.',
    'Measured without gaps between the calls, so that prewarming costs time of the next call.',
  ].join('\n')
}

function comparison(before: LatencyRow, after: LatencyRow): string[] {
  const change = (name: 'p50Ms' | 'p99Ms' | 'runsPerSecond') => `${shown(before[name])} → ${shown(after[name])}`
  const memory = [before.memoryBytes, after.memoryBytes].map((bytes) => (bytes === undefined ? '' : mebibytes(bytes)))
  return [
    `${after.language}, ${after.atOnce} at once: ${before.contender}`,
    `**${shown(before.p50Ms / after.p50Ms)}**`,
    shown(before.p99Ms / after.p99Ms),
    `**${shown(after.runsPerSecond / before.runsPerSecond)}**`,
    shown(before.busyCpuMsPerRun / after.busyCpuMsPerRun),
    memory.every(Boolean) ? memory.join(' → ') : '',
    ...[change('p50Ms'), change('p99Ms'), change('runsPerSecond')],
  ]
}
