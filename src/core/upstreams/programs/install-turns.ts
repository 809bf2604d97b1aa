import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Refusal } from '../../../base/errors.ts'
import type { UpstreamSandboxRow, UpstreamSandboxRows } from '../../../store/upstream-sandboxes.ts'

/** Time after which another process takes over from one that was killed. */
const heldMs = 15_000
const renewMs = 5_000
const pollMs = 200

/**
 * Lets one process at a time install programs on a disk: the server, and commands of administrators beside it. Each uses an
 * object of this class; what they hold is in the database.
 */
export class InstallTurns {
  readonly #rows: UpstreamSandboxRows
  readonly #installer = randomUUID()
  #isClosed = false

  constructor(rows: UpstreamSandboxRows) {
    this.#rows = rows
  }

  /**
   * Runs `work` when no other process installs on this disk.
   * @param work gets the row as it is then.
   * @throws Refusal `unavailable` if the row is removed meanwhile, or this object closed; what `work` throws.
   */
  async run<Result>(id: string, work: (row: UpstreamSandboxRow) => Promise<Result>): Promise<Result> {
    while (!(await this.#take(id))) {
      await sleep(pollMs)
      if (this.#isClosed) throw new Refusal('unavailable', { reason: 'the server is stopping' })
      if ((await this.#rows.byId(id)) === undefined) throw removed()
    }
    // A renewal that fails is followed by another one, before the time is over.
    const renewing = setInterval(() => void this.#take(id).catch(() => {}), renewMs).unref()
    try {
      const row = await this.#rows.byId(id)
      if (row === undefined) throw removed()
      return await work(row)
    } finally {
      clearInterval(renewing)
      await this.#rows.endInstalling(id, this.#installer)
    }
  }

  /** Returns whether another process installs a program on this disk. */
  async isOfAnother(id: string): Promise<boolean> {
    const { installer = null, installerUntil } = (await this.#rows.byId(id)) ?? {}
    return installer !== null && installer !== this.#installer && installerUntil! >= new Date().toISOString()
  }

  /** Ends the waiting. */
  close(): void {
    this.#isClosed = true
  }

  #take(id: string): Promise<boolean> {
    const nowMs = Date.now()
    const [at, until] = [nowMs, nowMs + heldMs].map((ms) => new Date(ms).toISOString())
    return this.#rows.beginInstalling(id, this.#installer, at!, until!)
  }
}

const removed = (): Refusal => new Refusal('unavailable', { reason: 'the upstream was removed' })
