import { setTimeout as sleep } from 'node:timers/promises'
import { median, quantile, quartiles } from './figures.ts'
import { busyCpuMs } from './process-figures.ts'

/** One row of the table: a way to run a program, under one kind of load. */
export interface Cell {
  id: string
  /** Runs it once and checks its output. @throws Error when that is wrong. */
  call(): Promise<void>
  /** Parallel calls. */
  atOnce: number
  /** Pause between the end of a call and the next one. */
  gapMs: number
  /** The baseline cell: its time and rate divide those of this cell. */
  against: string | undefined
  /** For slow cells that need less precision. */
  brief?: Brief | undefined
}

export interface Brief {
  /** At most; the others may have more. */
  rounds: number
  blockMs: number
}

interface Block {
  latenciesMs: number[]
  runsPerSecond: number
  /** Of the whole machine, including our own client and deferred work of the kernel. */
  busyCpuMsPerRun: number
  failures: number
}

export interface Measured {
  id: string
  runs: number
  /** Runs with a wrong ending or output. */
  failures: number
  p50Ms: number
  p95Ms: number
  p99Ms: number
  runsPerSecond: number
  busyCpuMsPerRun: number
  /** Relative to its baseline in the same round, median of the rounds; absent without one. */
  timeRatio?: number
  timeRatioQuartiles?: [number, number]
  rateRatio?: number
}

export interface Pace {
  rounds: number
  blockMs: number
  /** No further round starts after this, on a slow or busy machine. */
  roundsWithinMs: number
}

/** Calls before the measurement: afterwards caches, slots and connections are warm. */
const warmUpCalls = 3

/**
 * Measures all cells in turn, a block of each per round, so that noise of the machine affects all of them alike. Every
 * other round goes backwards: no cell always follows the same neighbor.
 */
export async function measure(cells: readonly Cell[], pace: Pace, tell: (done: string) => void): Promise<Measured[]> {
  for (const cell of cells) {
    if (cell.brief) continue
    for (let count = 0; count < warmUpCalls; count++) await Promise.all(timesOver(cell.atOnce, cell.call))
  }
  const blocks = new Map<string, Block[]>(cells.map(({ id }) => [id, []]))
  const startedMs = performance.now()
  for (let round = 0; round < pace.rounds; round++) {
    if (round > 0 && performance.now() - startedMs > pace.roundsWithinMs) break
    for (const cell of round % 2 === 0 ? cells : [...cells].reverse()) {
      const { rounds, blockMs } = cell.brief ?? pace
      if (round < rounds) blocks.get(cell.id)!.push(await runBlock(cell, blockMs))
    }
    tell(`round ${round + 1} of ${pace.rounds}`)
  }
  return cells.map((cell) => fold(cell, blocks))
}

/** Of one block: a failed call is reported and counted; more than these abort the measurement. */
const failuresMax = 20

/** The first call of each worker does not count: it pays for the previous use of the processor. */
async function runBlock({ id, call, atOnce, gapMs }: Cell, blockMs: number): Promise<Block> {
  const latenciesMs: number[] = []
  let failures = 0
  const count = (error: unknown) => {
    failures += 1
    if (failures > failuresMax) throw error
    process.stderr.write(`${id}: ${error instanceof Error ? error.message : error}\n`)
  }
  await Promise.all(timesOver(atOnce, () => call().catch(count)))
  const busyBefore = busyCpuMs()
  const startedMs = performance.now()
  const work = async () => {
    do {
      const calledMs = performance.now()
      try {
        await call()
        latenciesMs.push(performance.now() - calledMs)
      } catch (error) {
        count(error)
      }
      if (gapMs > 0) await sleep(gapMs)
    } while (performance.now() - startedMs < blockMs)
  }
  await Promise.all(timesOver(atOnce, work))
  const elapsedMs = performance.now() - startedMs
  return {
    latenciesMs,
    runsPerSecond: (latenciesMs.length * 1000) / elapsedMs,
    busyCpuMsPerRun: (busyCpuMs() - busyBefore) / latenciesMs.length,
    failures,
  }
}

const timesOver = (count: number, work: () => Promise<void>): Promise<void>[] => Array.from({ length: count }, work)

/** Medians of blocks; the 99th percentile is of all calls, since one block has too few. */
function fold(cell: Cell, blocks: ReadonlyMap<string, Block[]>): Measured {
  const own = blocks.get(cell.id)!
  const all = own.flatMap(({ latenciesMs }) => latenciesMs)
  const measured: Measured = {
    id: cell.id,
    runs: all.length,
    failures: own.reduce((sum, { failures }) => sum + failures, 0),
    p50Ms: median(own.map(({ latenciesMs }) => median(latenciesMs))),
    p95Ms: median(own.map(({ latenciesMs }) => quantile(latenciesMs, 0.95))),
    p99Ms: quantile(all, 0.99),
    runsPerSecond: median(own.map(({ runsPerSecond }) => runsPerSecond)),
    busyCpuMsPerRun: median(own.map(({ busyCpuMsPerRun }) => busyCpuMsPerRun)),
  }
  const other = cell.against === undefined ? undefined : blocks.get(cell.against)
  if (!other) return measured
  const times = own.map(({ latenciesMs }, round) => median(latenciesMs) / median(other[round]!.latenciesMs))
  const rates = own.map(({ runsPerSecond }, round) => runsPerSecond / other[round]!.runsPerSecond)
  return { ...measured, timeRatio: median(times), timeRatioQuartiles: quartiles(times), rateRatio: median(rates) }
}
