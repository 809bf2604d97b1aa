import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'

/** TypeScript in the source tree, JavaScript in packages. */
const checkpointer = new URL(`./sqlite-checkpointer${extname(import.meta.filename)}`, import.meta.url)

/** Time until a thread that has ended is replaced. */
const restartMs = 1_000

/** https://www.sqlite.org/fileformat2.html#walformat */
const pageBytes = 4_096

/** Size of the log up to which large values are added to it, as a multiple of the pages at which they are moved. */
const logMaxTimes = 6

/** Time that a large value waits at most: a reader of an old state, such as a backup, can keep the log from ending. */
const roomWithinMs = 5_000

/** What the thread is started with. */
export interface CheckpointWork {
  path: string
  pages: number
}

/** Pages in the log, and how many of them are in the database: https://www.sqlite.org/pragma.html#pragma_wal_checkpoint */
export interface LogState {
  log: number
  checkpointed: number
}

/** What the thread saw, or why it could not move pages. */
export type CheckpointReport = LogState | string

/**
 * Moves pages from the write-ahead log to the database in a worker thread, which waits for the disk in place of the event
 * loop. A commit writes to the log only, and does not wait for a disk that one tenant keeps busy with large output. If the
 * thread is late or dead, a connection with `pragma wal_autocheckpoint` does the work itself at its own number of pages.
 * https://www.sqlite.org/wal.html#avoiding_excessively_large_wal_files
 */
export class Checkpoints {
  readonly #work: CheckpointWork
  readonly #onError: (problem: string) => void
  readonly #waiting = new Set<() => void>()
  /** Size of the log at the last report, with the large values that were added since. */
  #logBytes = 0
  #checkpointed = 0
  /** The last problem, until pages are moved again. */
  #problem: string | undefined
  #worker: Worker | undefined
  #restart: NodeJS.Timeout | undefined
  #closed = false

  /**
   * @param path of a database in WAL mode.
   * @param pages number of pages in the log at which they are moved.
   * @param onError called when an attempt fails, and not again until one has succeeded or fails for another reason. An attempt
   * follows each second.
   */
  constructor(path: string, pages: number, onError: (problem: string) => void) {
    this.#work = { path, pages }
    this.#onError = onError
    this.#start()
  }

  /** Resolves when a value of so many bytes may be written: at once, or when the log is shorter, or after five seconds. */
  async room(bytes: number): Promise<void> {
    const maxBytes = logMaxTimes * this.#work.pages * pageBytes
    const untilMs = performance.now() + roomWithinMs
    while (this.#worker && this.#logBytes + bytes > maxBytes && performance.now() < untilMs) {
      await this.#change(untilMs - performance.now())
    }
    this.#logBytes += bytes
  }

  /** Ends the thread. Pages that were not moved remain in the log. */
  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#restart)
    await this.#worker?.terminate()
  }

  #start(): void {
    const worker = new Worker(checkpointer, { workerData: this.#work })
    worker.unref()
    worker.on('message', (report: CheckpointReport) => this.#take(report))
    worker.on('error', (error) => this.#report(String(error)))
    worker.on('exit', () => {
      this.#worker = undefined
      this.#announce()
      if (!this.#closed) this.#restart = setTimeout(() => this.#start(), restartMs).unref()
    })
    this.#worker = worker
  }

  #take(report: CheckpointReport): void {
    if (typeof report === 'string') {
      this.#logBytes = 0
      this.#report(report)
    } else {
      // The next writer begins a log anew of which nothing is left.
      this.#logBytes = report.log > report.checkpointed ? report.log * pageBytes : 0
      if (report.checkpointed > this.#checkpointed) this.#problem = undefined
      this.#checkpointed = report.checkpointed
    }
    this.#announce()
  }

  #report(problem: string): void {
    if (problem !== this.#problem) this.#onError(problem)
    this.#problem = problem
  }

  #announce(): void {
    for (const wake of this.#waiting) wake()
  }

  async #change(withinMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => wake(), withinMs)
      const wake = () => {
        clearTimeout(timer)
        this.#waiting.delete(wake)
        resolve()
      }
      this.#waiting.add(wake)
    })
  }
}
