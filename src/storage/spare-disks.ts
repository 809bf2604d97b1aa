import { rm } from 'node:fs/promises'

/** Sizes of which a copy is kept: the most recent ones. */
const sizesMax = 4
/** The next copy is made so long after the last one was taken, since its caller needs the disk of the machine first. */
const delayMs = 250

interface Spare {
  /** Path of a complete copy that was synced; `undefined` until it was made. */
  path: string | undefined
  timer: NodeJS.Timeout | undefined
}

/** A complete copy of each template in use that waits for a name, since copying and syncing take most of a creation. */
export class SpareDisks {
  readonly #copy: (template: string) => Promise<string>
  /** By template, the most recent one last. */
  readonly #spares = new Map<string, Spare>()
  #copying: Promise<void> = Promise.resolve()
  #closed = false

  /** @param copy makes a synced copy of a template under a name of its own. */
  constructor(copy: (template: string) => Promise<string>) {
    this.#copy = copy
  }

  /** Takes the copy of a template, if there is one, and makes the next one later. */
  take(template: string): string | undefined {
    if (this.#closed) return undefined
    const spare = this.#spares.get(template) ?? { path: undefined, timer: undefined }
    const { path } = spare
    spare.path = undefined
    this.#spares.delete(template)
    this.#spares.set(template, spare)
    clearTimeout(spare.timer)
    spare.timer = setTimeout(() => {
      this.#copying = this.#copying.then(() => this.#fill(template, spare))
    }, delayMs)
    spare.timer.unref()
    this.#forgetOldest()
    return path
  }

  /** Waits for a copy in progress. What was copied is removed at the next start. */
  async close(): Promise<void> {
    this.#closed = true
    for (const { timer } of this.#spares.values()) clearTimeout(timer)
    await this.#copying
  }

  /** A disk that has no room for a spare has its problem with the next creation, which reports it. */
  async #fill(template: string, spare: Spare): Promise<void> {
    if (this.#closed || spare.path !== undefined || this.#spares.get(template) !== spare) return
    spare.path = await this.#copy(template).catch(() => undefined)
  }

  #forgetOldest(): void {
    for (const [template, spare] of this.#spares) {
      if (this.#spares.size <= sizesMax) return
      this.#spares.delete(template)
      clearTimeout(spare.timer)
      if (spare.path !== undefined) void rm(spare.path, { force: true }).catch(() => undefined)
    }
  }
}
