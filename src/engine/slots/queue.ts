import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'

export interface QueueSettings {
  /** Runs at once on this machine. */
  places: number
  /** Runs of one org at once; no more than `places` come about. */
  placesPerOrg: number
  /** Runs of one org that may wait for a place. */
  waitingPerOrg: number
  /** Longest wait for a place, in milliseconds. */
  waitMs: number
  /** Part of `places` that only an org without a place may take, so that a few orgs cannot take them all. */
  reserved?: number
  /** At most so many places are reserved in addition, one for each org that had one within the last ten minutes. */
  keptForRecent?: number
}

const recentMs = 10 * 60_000

/** A place to run in; to be released exactly once, further releases do nothing. */
export interface Place {
  release(): void
}

interface Waiter {
  orgId: string
  grant(place: Place): void
}

/**
 * Decides who runs next on this machine: a bounded number of places, fewer for each org, a bounded queue per org. A
 * place that comes free goes to the waiting org that has the fewest runs going, and within an org to the one that waited longest.
 * An org with long runs can take every place that is not kept for another one.
 */
export class FairQueue {
  readonly #settings: QueueSettings
  readonly #waiting: Waiter[] = []
  readonly #runningOf = new Map<string, number>()
  /** When the last run of an org ended that has none now; oldest first. */
  readonly #leftAtMs = new Map<string, number>()
  #running = 0

  constructor(settings: QueueSettings) {
    this.#settings = settings
  }

  get running(): number {
    return this.#running
  }

  get waiting(): number {
    return this.#waiting.length
  }

  /**
   * Waits for a place.
   * @param signal gives the wait up; the promise then rejects with its reason.
   * @throws Refusal `queue_full` at once when the queue of the organization is full, `queue_timeout` after `waitMs`
   * without a place.
   */
  enter(orgId: string, signal: AbortSignal): Promise<Place> {
    signal.throwIfAborted()
    // Who waits while a place is free waits for a run of its own org.
    if (this.#running < this.#settings.places && this.#mayRun(orgId)) return Promise.resolve(this.#take(orgId))
    const waitingOfOrg = this.#waiting.filter((waiter) => waiter.orgId === orgId).length
    if (waitingOfOrg >= this.#settings.waitingPerOrg) return Promise.reject(this.#full(orgId, waitingOfOrg))
    return this.#wait(orgId, signal)
  }

  #wait(orgId: string, signal: AbortSignal): Promise<Place> {
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        orgId,
        grant: (place) => {
          settle()
          resolve(place)
        },
      }
      const leave = (reason: unknown) => {
        settle()
        this.#waiting.splice(this.#waiting.indexOf(waiter), 1)
        reject(reason)
      }
      const onAbort = () => leave(signal.reason)
      const timer = setTimeout(() => leave(this.#tooLong(orgId)), this.#settings.waitMs)
      const settle = () => {
        clearTimeout(timer)
        signal.removeEventListener('abort', onAbort)
      }
      signal.addEventListener('abort', onAbort)
      this.#waiting.push(waiter)
    })
  }

  #take(orgId: string): Place {
    this.#running += 1
    this.#leftAtMs.delete(orgId)
    this.#runningOf.set(orgId, (this.#runningOf.get(orgId) ?? 0) + 1)
    let held = true
    return {
      release: () => {
        if (!held) return
        held = false
        this.#leave(orgId)
      },
    }
  }

  #leave(orgId: string): void {
    this.#running -= 1
    const left = this.#runningOf.get(orgId)! - 1
    if (left > 0) this.#runningOf.set(orgId, left)
    else {
      this.#runningOf.delete(orgId)
      this.#leftAtMs.set(orgId, monotonicMs())
    }
    const next = this.#next()
    if (next) next.grant(this.#take(next.orgId))
  }

  #next(): Waiter | undefined {
    let best: Waiter | undefined
    for (const waiter of this.#waiting) {
      if (!this.#mayRun(waiter.orgId)) continue
      if (best === undefined || this.#load(waiter.orgId) < this.#load(best.orgId)) best = waiter
    }
    if (best) this.#waiting.splice(this.#waiting.indexOf(best), 1)
    return best
  }

  #load(orgId: string): number {
    return this.#runningOf.get(orgId) ?? 0
  }

  #mayRun(orgId: string): boolean {
    const { places, placesPerOrg, reserved = 0 } = this.#settings
    const load = this.#load(orgId)
    return load < placesPerOrg && (load === 0 || this.#running < places - reserved - this.#keptForRecent())
  }

  #keptForRecent(): number {
    const { keptForRecent = 0 } = this.#settings
    const beforeMs = monotonicMs() - recentMs
    for (const [orgId, leftAtMs] of this.#leftAtMs) {
      if (leftAtMs >= beforeMs) break
      this.#leftAtMs.delete(orgId)
    }
    return Math.min(keptForRecent, this.#leftAtMs.size)
  }

  #full(orgId: string, waiting: number): Refusal {
    return new Refusal('queue_full', { running: this.#runningBefore(orgId), waiting, retryAfterSeconds: 1 })
  }

  #tooLong(orgId: string): Refusal {
    const waitedSeconds = this.#settings.waitMs / 1000
    return new Refusal('queue_timeout', { running: this.#runningBefore(orgId), waitedSeconds, retryAfterSeconds: 1 })
  }

  /** Returns how many runs keep one of this organization waiting. */
  #runningBefore(orgId: string): number {
    return this.#mayRun(orgId) ? this.#running : this.#load(orgId)
  }
}
