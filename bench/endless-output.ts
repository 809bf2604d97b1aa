import type { GloveboxServer } from './glovebox-server.ts'
import { rssBytesOf } from './process-figures.ts'

export interface EndlessOutput {
  runs: number
  atOnce: number
  /** Bytes written by all of them. */
  outputBytes: number
  seconds: number
  front: Growth
  runner: Growth
}

interface Growth {
  /** Resident memory, after the warm-up and then after each batch. */
  afterBatchBytes: number[]
  peakBytes: number
  /** Mean of the last third over mean of the first third: 1 is flat. */
  lastToFirst: number
}

/** Writes as fast as it can until it is stopped. */
const code = "import os\nwhile True: os.write(1, b'x' * 65535 + b'\\n')"
const batches = 12
const atOnce = 4
const sampleEveryMs = 50

/** Measures the memory of front and runner while programs print without end, four at once. @param runs total number of programs. */
export async function measureEndlessOutput(server: GloveboxServer, runs: number): Promise<EndlessOutput> {
  const { front, runner } = server.parts()
  const seen = { front: [] as number[], runner: [] as number[] }
  const peak = { front: 0, runner: 0 }
  const watch = setInterval(() => {
    peak.front = Math.max(peak.front, rssBytesOf(front))
    peak.runner = Math.max(peak.runner, rssBytesOf(runner))
  }, sampleEveryMs)
  const perBatch = Math.max(Math.ceil(runs / batches), atOnce)
  let outputBytes = 0
  const startedMs = performance.now()
  for (let done = 0; done < runs; done += perBatch) {
    outputBytes += await runBatch(server, Math.min(perBatch, runs - done))
    seen.front.push(rssBytesOf(front))
    seen.runner.push(rssBytesOf(runner))
  }
  clearInterval(watch)
  const growth = (part: 'front' | 'runner'): Growth => ({
    afterBatchBytes: seen[part],
    peakBytes: peak[part],
    lastToFirst: lastToFirst(seen[part]),
  })
  const seconds = (performance.now() - startedMs) / 1000
  return { runs, atOnce, outputBytes, seconds, front: growth('front'), runner: growth('runner') }
}

/** @returns bytes that its programs wrote. @throws Error when one of them did not end by its output limit. */
async function runBatch(server: GloveboxServer, runs: number): Promise<number> {
  let left = runs
  let outputBytes = 0
  const work = async () => {
    while (left-- > 0) {
      const { ending, stdout_bytes } = await server.callTool(code, 'python')
      if (ending.kind !== 'output_limit') throw new Error(`endless output ended as ${JSON.stringify(ending)}`)
      outputBytes += stdout_bytes
    }
  }
  await Promise.all(Array.from({ length: atOnce }, work))
  return outputBytes
}

function lastToFirst(values: readonly number[]): number {
  const third = Math.max(Math.floor(values.length / 3), 1)
  const mean = (part: readonly number[]) => part.reduce((sum, value) => sum + value, 0) / part.length
  return mean(values.slice(-third)) / mean(values.slice(0, third))
}
