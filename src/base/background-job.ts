/** Where a job gets its timers from; tests give one that they advance themselves. */
export interface Timers {
  /** Calls `run` after `delayMs`, without keeping the process alive. @returns a function that cancels it. */
  after(delayMs: number, run: () => void): () => void
}

const systemTimers: Timers = {
  after(delayMs, run) {
    const timer = setTimeout(run, delayMs).unref()
    return () => clearTimeout(timer)
  },
}

export interface JobOptions {
  /** From the end of one run of the work to the start of the next; a function is called after each run. */
  everyMs: number | (() => number)
  /** Aborted when the job is stopped; long work should look at it. */
  work: (signal: AbortSignal) => Promise<void>
  /** Called with a failure, unless the run before failed in the same way. */
  onFault: (error: unknown) => void
  /** Pause after a first failure; it doubles with each further one, up to `retryMaxMs`. Default: 2 s. */
  retryMs?: number
  /** Default: 30 s. */
  retryMaxMs?: number
  timers?: Timers
}

/** What a job has done since it was created. */
export interface JobState {
  runs: number
  failures: number
  /** Failures since the last success. */
  failing: number
  /** ISO 8601; `null` before the first run. */
  lastStartedAt: string | null
  lastMs: number | null
  lastProblem: string | null
  isRunning: boolean
  isPaused: boolean
}

/** Repeats work in the background. Runs never overlap, and a failure delays the next run. */
export class BackgroundJob {
  readonly #options: Required<JobOptions>
  readonly #closing = new AbortController()
  #cancelTimer: (() => void) | undefined
  #running: Promise<void> | undefined
  #failures = 0
  #isPaused = false
  readonly #totals = { runs: 0, failures: 0 }
  #last: { startedAt: string; ms: number | null } | undefined
  #lastProblem: string | undefined

  constructor(options: JobOptions) {
    this.#options = { retryMs: 2_000, retryMaxMs: 30_000, timers: systemTimers, ...options }
  }

  /** Schedules the first run. Does nothing when the job was started before. */
  start(): void {
    if (this.#cancelTimer === undefined && this.#running === undefined) this.#schedule()
  }

  get state(): JobState {
    return {
      ...this.#totals,
      failing: this.#failures,
      lastStartedAt: this.#last?.startedAt ?? null,
      lastMs: this.#last?.ms ?? null,
      lastProblem: this.#lastProblem ?? null,
      isRunning: this.#running !== undefined,
      isPaused: this.#isPaused,
    }
  }

  /** Skips the scheduled runs until `resume`. `run` still works. */
  pause(): void {
    this.#isPaused = true
    this.#cancelTimer?.()
  }

  resume(): void {
    if (!this.#isPaused) return
    this.#isPaused = false
    if (this.#running === undefined) this.#schedule()
  }

  /** Runs the work now, or waits for the run that is under way. Never rejects: a failure is reported as any other. */
  run(): Promise<void> {
    if (this.#closing.signal.aborted) return Promise.resolve()
    this.#running ??= this.#runOnce().finally(() => {
      this.#running = undefined
      this.#schedule()
    })
    return this.#running
  }

  /** Aborts the signal of the work and resolves when it has ended. The work is not run again. */
  async stop(): Promise<void> {
    this.#closing.abort()
    this.#cancelTimer?.()
    await this.#running
  }

  async #runOnce(): Promise<void> {
    this.#cancelTimer?.()
    const startedMs = performance.now()
    this.#last = { startedAt: new Date().toISOString(), ms: null }
    this.#totals.runs += 1
    try {
      await this.#options.work(this.#closing.signal)
      this.#failures = 0
      this.#lastProblem = undefined
    } catch (error) {
      this.#failures += 1
      this.#totals.failures += 1
      const problem = String(error)
      if (problem !== this.#lastProblem) this.#options.onFault(error)
      this.#lastProblem = problem
    } finally {
      this.#last.ms = performance.now() - startedMs
    }
  }

  #schedule(): void {
    if (this.#closing.signal.aborted || this.#isPaused) return
    this.#cancelTimer = this.#options.timers.after(this.#delayMs(), () => void this.run())
  }

  #delayMs(): number {
    const { retryMs, retryMaxMs, everyMs: every } = this.#options
    const everyMs = typeof every === 'number' ? every : every()
    if (this.#failures === 0) return everyMs
    return Math.max(everyMs, Math.min(retryMs * 2 ** (this.#failures - 1), retryMaxMs))
  }
}
