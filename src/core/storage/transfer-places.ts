import { Refusal } from '../../base/errors.ts'

/** Longest time that a file waits for other files of its key. */
const waitMs = 30_000
const retryAfterSeconds = 1

interface KeyUse {
  active: number
  /** In the order in which they came. */
  waiting: Set<() => void>
}

/** Bounds how many files of one key are read and written at the same time. Further ones wait for their turn. */
export class TransferPlaces {
  readonly #perKey: number
  readonly #waitMs: number
  readonly #keys = new Map<string, KeyUse>()

  /** @param longestWaitMs after which a file is refused. */
  constructor(perKey: number, longestWaitMs = waitMs) {
    this.#perKey = perKey
    this.#waitMs = longestWaitMs
  }

  /** @returns what releases the place, once. @throws Refusal transfers_full. */
  async enter(keyId: string): Promise<() => void> {
    const use = this.#keys.get(keyId) ?? { active: 0, waiting: new Set() }
    this.#keys.set(keyId, use)
    if (use.active < this.#perKey) use.active += 1
    else await this.#turn(use)
    let isHeld = true
    return () => {
      if (isHeld) this.#leave(keyId, use)
      isHeld = false
    }
  }

  /** Resolves with a place that another file has left. */
  #turn({ waiting }: KeyUse): Promise<void> {
    return new Promise((resolve, reject) => {
      const granted = () => {
        clearTimeout(timer)
        resolve()
      }
      const timer = setTimeout(() => {
        waiting.delete(granted)
        reject(new Refusal('transfers_full', { limit: this.#perKey, retryAfterSeconds }))
      }, this.#waitMs)
      waiting.add(granted)
    })
  }

  #leave(keyId: string, use: KeyUse): void {
    const [next] = use.waiting
    if (next) {
      use.waiting.delete(next)
      next()
      return
    }
    use.active -= 1
    if (use.active === 0) this.#keys.delete(keyId)
  }
}
