import { mebibytes, shown, table } from './figures.ts'
import { type Latency, type LatencyRow, ourCold, ourOwnInterpreter, ourWarm } from './latency.ts'

/** Every figure of every way to run a program. */
export function latencyPart({ rows, absent }: Latency): string {
  const header = ['', 'time ÷ bare', 'rate ÷ bare', 'p50 ms', 'p95 ms', 'p99 ms', 'runs/s', 'CPU ms/run', 'MiB', 'runs']
  const missing = Object.entries(absent).map(([name, reason]) => [`not usable here: ${name}`, `${reason}`])
  const failed = rows.filter(({ failures }) => failures > 0)
  return [
    '## Time of one run',
    '',
    table(header, rows.map(cellsOf)),
    ...(missing.length > 0 ? ['', table(['contender', 'why it was not measured'], missing)] : []),
    ...failed.map(({ id, failures }) => `\n**${failures} runs failed: ${id}.**`),
    '',
    '"Bare" is the interpreter spawned from Node without any isolation, under the same load, in the same round; between',
    'brackets the quartiles of the rounds. CPU is what the whole machine worked per run, the client, the kernel’s',
    'afterwork and anything else on the machine included. MiB is what one run of that language holds while it waits:',
    'all its processes, monitors and what serves its sandbox, shared pages counted in part. "Own interpreter" has a slot',
    'ready and starts the program afresh in it; "cold slot" makes a whole container for the run. sandbox-runtime is used',
    'as the library it is, prepared once in a process of its own.',
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
 * What slots, jails and hosts that wait bring: the same product, asked for a whole container for each run (before), and
 * for an interpreter of its own in a slot that waits, against what it does by itself (after).
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
    'Before is one OCI container for each run ("cold slot"), or an interpreter of its own in a slot that waits; after is',
    'what we do by ourselves. Without gaps between the calls, so that what is made ahead costs the next call.',
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
