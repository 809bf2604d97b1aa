import { type Profiler, console as profiles, Session } from 'node:inspector'
import { setTimeout as sleep } from 'node:timers/promises'

/** Between two samples, in microseconds: 300 samples in three seconds are enough to rank functions. */
const samplingUs = 10_000

/** Time after the last profile for which V8 stays prepared for the next one, in milliseconds. */
const preparedMs = 5 * 60_000

/** Time after which the placeholder is replaced, so that its samples stay few; in milliseconds. */
const placeholderMs = 15_000

export interface TakenProfile {
  profile: Profiler.Profile
  /** Time for which starting and ending the profile blocked the process, in milliseconds. */
  pausedMs: number
}

/**
 * Takes CPU profiles of this thread. Before the first one, V8 walks the heap to learn where the code is, which blocks the
 * process for about a tenth of a second, and forgets it with the last one. So a profile that is never read is kept open for
 * some minutes, beside which further ones start and end in less than a millisecond. Only profiles of the console can overlap:
 * https://chromedevtools.github.io/devtools-protocol/v8/Profiler/#event-consoleProfileFinished
 */
export class CpuProfiler {
  #session: Session | undefined
  #placeholder = ''
  /** Profiles that are taken now. */
  #taking = 0
  #lastMs = 0
  #started = 0
  #finished: Profiler.Profile | undefined

  /** Takes a profile. Several can be taken at once. */
  async profile(durationMs: number): Promise<TakenProfile> {
    this.#taking += 1
    try {
      const calledMs = performance.now()
      this.#prepare()
      const name = this.#start()
      const startMs = performance.now() - calledMs
      await sleep(durationMs)
      const endedMs = performance.now()
      const profile = this.#end(name)
      if (profile === undefined) throw new Error('V8 returned no profile')
      return { profile, pausedMs: startMs + performance.now() - endedMs }
    } finally {
      this.#taking -= 1
      this.#lastMs = performance.now()
    }
  }

  #prepare(): void {
    if (this.#session !== undefined) return
    const session = new Session()
    session.connect()
    session.on('Profiler.consoleProfileFinished', ({ params }) => {
      this.#finished = params.profile
    })
    session.post('Profiler.enable')
    session.post('Profiler.setSamplingInterval', { interval: samplingUs })
    this.#session = session
    this.#placeholder = this.#start()
    setTimeout(() => this.#renew(), placeholderMs).unref()
  }

  #renew(): void {
    if (this.#taking === 0 && performance.now() - this.#lastMs > preparedMs) {
      this.#session?.disconnect()
      this.#session = undefined
      return
    }
    const former = this.#placeholder
    this.#placeholder = this.#start()
    this.#end(former)
    setTimeout(() => this.#renew(), placeholderMs).unref()
  }

  #start(): string {
    this.#started += 1
    const name = `glovebox ${this.#started}`
    profiles.profile(name)
    return name
  }

  #end(name: string): Profiler.Profile | undefined {
    this.#finished = undefined
    profiles.profileEnd(name)
    return this.#finished
  }
}
