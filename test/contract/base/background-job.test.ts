import { describe, expect, it } from 'vitest'
import { BackgroundJob, type JobOptions, type Timers } from '../../../src/base/background-job.ts'

/** Timers that fire when the test says so. */
class ManualTimers implements Timers {
  pending: { delayMs: number; run: () => void } | undefined

  after(delayMs: number, run: () => void): () => void {
    const timer = { delayMs, run }
    this.pending = timer
    return () => {
      if (this.pending === timer) this.pending = undefined
    }
  }

  /** @returns the delay after which the timer was due. */
  async fire(): Promise<number | undefined> {
    const timer = this.pending
    this.pending = undefined
    timer?.run()
    await new Promise(setImmediate)
    return timer?.delayMs
  }
}

function newJob(work: JobOptions['work'], options: Partial<JobOptions> = {}) {
  const timers = new ManualTimers()
  const faults: unknown[] = []
  const onFault = (error: unknown) => void faults.push(error)
  const job = new BackgroundJob({ everyMs: 100, retryMs: 1_000, retryMaxMs: 5_000, work, onFault, timers, ...options })
  return { job, timers, faults }
}

describe('a background job', () => {
  it('repeats its work, each time after the run before has ended', async () => {
    let runs = 0
    const release = Promise.withResolvers<void>()
    const { job, timers } = newJob(async () => {
      runs += 1
      if (runs === 2) await release.promise
    })
    job.start()
    expect(await timers.fire()).toBe(100)
    expect(await timers.fire()).toBe(100)
    expect([runs, timers.pending]).toEqual([2, undefined])
    release.resolve()
    await job.run()
    expect(timers.pending?.delayMs).toBe(100)
    await job.stop()
  })

  it('runs its work once for several requests at the same moment', async () => {
    let runs = 0
    const { job } = newJob(async () => {
      runs += 1
    })
    await Promise.all([job.run(), job.run()])
    expect(runs).toBe(1)
    await job.stop()
  })

  it('waits longer after each failure, up to a bound, and reports a repeated failure once', async () => {
    let fails = true
    let problem = 'broken'
    const { job, timers, faults } = newJob(async () => {
      if (fails) throw new Error(problem)
    })
    job.start()
    const delays: (number | undefined)[] = []
    for (let n = 0; n < 6; n++) delays.push(await timers.fire())
    expect(delays).toEqual([100, 1_000, 2_000, 4_000, 5_000, 5_000])
    expect(faults).toHaveLength(1)
    fails = false
    await timers.fire()
    expect(timers.pending?.delayMs).toBe(100)
    fails = true
    await timers.fire()
    expect(faults).toHaveLength(2)
    problem = 'broken in another way'
    await timers.fire()
    expect(faults).toHaveLength(3)
    await job.stop()
  })

  it('stops once its work has ended, which it asks for, and does not run again', async () => {
    const release = Promise.withResolvers<void>()
    let aborted = false
    let runs = 0
    const { job, timers } = newJob(async (signal) => {
      runs += 1
      signal.addEventListener('abort', () => {
        aborted = true
      })
      await release.promise
    })
    void job.run()
    let stopped = false
    const stopping = job.stop().then(() => {
      stopped = true
    })
    await new Promise(setImmediate)
    expect([aborted, stopped]).toEqual([true, false])
    release.resolve()
    await stopping
    await job.run()
    expect([runs, timers.pending]).toEqual([1, undefined])
  })
})
