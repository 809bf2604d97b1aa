import { monotonicMs, timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { ImageProgress } from '../../base/image.ts'

/** A pull or build that was requested over REST, and that continues after the answer. */
export interface ImageJob {
  name: string
  kind: 'pull' | 'build'
  state: 'running' | 'done' | 'failed'
  progress: ImageProgress
  /** Why it failed; empty otherwise. */
  problem: string
  started_at: string
  ended_at: string | null
}

/** Jobs that are remembered; the oldest that has ended is forgotten first. */
const jobsMax = 100
/** Jobs at the same time. The runner makes one image after the other. */
const runningMax = 16

/** The pulls and builds of this front, by name of the image. They end with it; what they downloaded is kept. */
export class ImageJobs {
  readonly #jobs = new Map<string, ImageJob>()
  readonly #stopping = new AbortController()
  readonly #onFault: (error: unknown) => void

  /** @param onFault receives errors that are not refusals. */
  constructor(onFault: (error: unknown) => void) {
    this.#onFault = onFault
  }

  /** Newest first. */
  list(): ImageJob[] {
    return [...this.#jobs.values()].toReversed()
  }

  /**
   * Starts a job, or returns the one that is running for this name.
   * @throws Refusal unavailable while too many are running.
   */
  start(
    { name, kind }: Pick<ImageJob, 'name' | 'kind'>,
    work: (progress: (progress: ImageProgress) => void, signal: AbortSignal) => Promise<unknown>,
  ): ImageJob {
    const known = this.#jobs.get(name)
    if (known?.state === 'running') return known
    const running = [...this.#jobs.values()].filter(({ state }) => state === 'running')
    if (running.length >= runningMax)
      throw new Refusal('unavailable', { reason: `${runningMax} images are being made` })
    const job: ImageJob = {
      ...{ name, kind, state: 'running', problem: '', started_at: timestamp(), ended_at: null },
      progress: { step: 'waiting', detail: '', done: 0, total: 0 },
    }
    this.#jobs.delete(name)
    this.#jobs.set(name, job)
    this.#forgetOld()
    void this.#run(job, work)
    return job
  }

  /** Ends all jobs. */
  close(): void {
    this.#stopping.abort(new Refusal('unavailable', { reason: 'the server is stopping' }))
  }

  async #run(
    job: ImageJob,
    work: (progress: (progress: ImageProgress) => void, signal: AbortSignal) => Promise<unknown>,
  ): Promise<void> {
    const startedMs = monotonicMs()
    try {
      await work((progress) => {
        job.progress = progress
      }, this.#stopping.signal)
      job.state = 'done'
      job.progress = { step: 'done', detail: '', done: Math.round(monotonicMs() - startedMs), total: 0 }
    } catch (error) {
      job.state = 'failed'
      if (!(error instanceof Refusal)) this.#onFault(error)
      job.problem = error instanceof Refusal ? error.message : 'the server failed; see its log'
    }
    job.ended_at = timestamp()
  }

  #forgetOld(): void {
    for (const [name, { state }] of this.#jobs) {
      if (this.#jobs.size <= jobsMax) return
      if (state !== 'running') this.#jobs.delete(name)
    }
  }
}
