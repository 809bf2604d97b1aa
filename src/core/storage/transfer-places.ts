import { Refusal } from '../../base/errors.ts'

/** Maximum time that a transfer waits for other transfers of its key. */
const waitMs = 30_000
const retryAfterSeconds = 1

interface KeyUse {
  active: number
  /** Waiting transfers, oldest first. */
  waiting: Set<() => void>
}

/** Limits the concurrent file transfers of one key. Further ones wait in a queue. */
export class TransferPlaces {
  readonly #perKey: number
  readonly #waitMs: number
  readonly #keys = new Map<string, KeyUse>()

  /** @param longestWaitMs time after which a waiting transfer is refused. */
  constructor(perKey: number, longestWaitMs = waitMs) {
    this.#perKey = perKey
    this.#waitMs = longestWaitMs
  }

  /** Waits for a place. @returns a function that releases it; further calls do nothing. @throws Refusal transfers_full. */
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

  /** Resolves when another transfer passes on its place. */
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
