import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type ProcessorShare, Processors, processorsOf } from '../../../src/engine/cgroups/processors.ts'

describe('the processors of a run', () => {
  it('are its share rounded up, and at most the available ones', () => {
    const processors = new Processors([0, 1, 2, 3])
    expect([0.01, 0.5, 1, 1.2, 4, 99].map((cpus) => processors.countFor(cpus))).toEqual([1, 1, 1, 2, 4, 4])
    expect(processors.take(99, []).processors).toEqual([0, 1, 2, 3])
  })

  it('are the least busy ones', () => {
    const processors = new Processors([0, 1, 2])
    expect([1, 1, 1].map((cpus) => processors.take(cpus, []).processors)).toEqual([[0], [1], [2]])
    const whole = new Processors([0, 1, 2])
    whole.take(0.5, [])
    whole.take(1, [])
    expect(whole.take(2, []).processors).toEqual([0, 2])
  })

  it('stay the same when others are equally busy', () => {
    const processors = new Processors([0, 1])
    expect(processors.take(1, [1]).processors).toEqual([1])
    expect(processors.take(1, [1]).processors).toEqual([0])
  })

  it('never leave one idle while another has two runs, for every sequence of starts and ends', () => {
    fc.assert(
      fc.property(fc.array(fc.option(fc.nat(5)), { maxLength: 60 }), fc.integer({ min: 1, max: 6 }), (steps, count) => {
        const processors = new Processors(Array.from({ length: count }, (_, at) => at))
        const runs: ProcessorShare[] = []
        for (const step of steps) {
          if (step === null) runs.push(processors.take(1, []))
          else runs.splice(step, 1)[0]?.release()
          // A new run takes the least busy; an ended one may leave a gap until the next starts.
          if (step !== null) continue
          const loads = Array.from(
            { length: count },
            (_, at) => runs.filter((run) => run.processors.includes(at)).length,
          )
          const last = runs.at(-1)?.processors[0] ?? 0
          expect(loads[last]! - 1).toBe(Math.min(...loads.map((load, at) => (at === last ? load - 1 : load))))
        }
      }),
    )
  })

  it('are parsed from a list in the format of the kernel', () => {
    expect(processorsOf('0-2,5,7-8\n')).toEqual([0, 1, 2, 5, 7, 8])
    expect(processorsOf('\n')).toEqual([])
  })
})
