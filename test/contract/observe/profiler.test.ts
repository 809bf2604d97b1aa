import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { allocations, cpuProfile, type HotSpot } from '../../../src/observe/profiler.ts'

/** Works in short pieces until a promise is settled. */
async function workDuring<Result>(report: Promise<Result>, work: () => void): Promise<Result> {
  let isOver = false
  const over = report.finally(() => {
    isOver = true
  })
  while (!isOver) {
    work()
    await turn()
  }
  return over
}

const kept: object[][] = []

function countUp(): number {
  let sum = 0
  for (let at = 0; at < 2_000_000; at++) sum += at % 7
  return sum
}

/** Its objects are garbage as soon as it is called again. */
function allocateMuch(): void {
  kept[0] = Array.from({ length: 20_000 }, (_, at) => ({ at }))
}

const functionsOf = (spots: readonly HotSpot[]) => spots.map((spot) => spot.function)

describe('a CPU profile', () => {
  it('names the functions that use the processor, in the first profile and in later ones', async () => {
    for (const durationMs of [200, 300]) {
      const report = await workDuring(cpuProfile(durationMs, 20), countUp)
      expect(report).toMatchObject({ duration_ms: durationMs, paused_ms: expect.any(Number) })
      const { hot_functions } = report as { hot_functions: (HotSpot & { self_ms: number })[] }
      expect(functionsOf(hot_functions)).toContain('countUp')
      expect(hot_functions.find((spot) => spot.function === 'countUp')?.at).toMatch(/profiler\.test\.ts:\d+$/)
    }
  })

  it('can overlap with another one', async () => {
    const both = Promise.all([cpuProfile(100, 20), cpuProfile(300, 20)])
    for (const report of await workDuring(both, countUp)) {
      expect(functionsOf((report as { hot_functions: HotSpot[] }).hot_functions)).toContain('countUp')
    }
  })
})

describe('a profile of allocations', () => {
  it('names functions whose objects are gone again', async () => {
    const report = await workDuring(allocations(300, 20), allocateMuch)
    const { allocators } = report as { allocators: (HotSpot & { bytes: number })[] }
    // The objects are made by the callback.
    const [first] = allocators
    expect(first?.at).toMatch(/profiler\.test\.ts:\d+$/)
    expect(first?.bytes).toBeGreaterThan(1_000_000)
  })
})
