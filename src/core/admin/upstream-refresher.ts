import { LRUCache } from 'lru-cache'
import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { AdminContext } from './admin.ts'
import { refreshIfChanged, type UpstreamRef } from './upstreams.ts'

/** Minimum time between two readings of one upstream, which can announce changes without end. */
const intervalMs = 60_000
/** Maximum number of upstreams whose last reading is known. */
const knownMax = 10_000
/** Maximum number of upstreams that are read at the same time; further announcements are ignored. */
const runningMax = 16

/** Reads the tools of upstreams again when they announce that these have changed. */
export class UpstreamRefresher {
  readonly #context: AdminContext
  readonly #log: Log
  readonly #intervalMs: number
  readonly #readAt = new LRUCache<string, number>({ max: knownMax })
  readonly #timers = new Map<string, NodeJS.Timeout>()
  readonly #running = new Set<Promise<void>>()

  constructor(context: AdminContext, log: Log, minIntervalMs: number = intervalMs) {
    this.#context = context
    this.#log = log
    this.#intervalMs = minIntervalMs
  }

  /** Reads the tools now, or as soon as the interval permits. Changed tools are suspended, as for `refreshUpstream`. */
  announce(ref: UpstreamRef): void {
    const id = `${ref.orgId} ${ref.name}`
    if (this.#timers.has(id) || this.#timers.size + this.#running.size >= runningMax) return
    const waitMs = (this.#readAt.get(id) ?? Number.NEGATIVE_INFINITY) + this.#intervalMs - monotonicMs()
    const timer = setTimeout(
      () => {
        this.#timers.delete(id)
        this.#readAt.set(id, monotonicMs())
        const running = this.#read(ref)
        this.#running.add(running)
        void running.finally(() => this.#running.delete(running))
      },
      Math.max(waitMs, 0),
    ).unref()
    this.#timers.set(id, timer)
  }

  /** Waits for readings in progress. */
  async stop(): Promise<void> {
    for (const timer of this.#timers.values()) clearTimeout(timer)
    this.#timers.clear()
    await Promise.all(this.#running)
  }

  async #read(ref: UpstreamRef): Promise<void> {
    try {
      await refreshIfChanged(this.#context, ref)
    } catch (error) {
      // It is down, or was removed; the approved tools remain.
      if (error instanceof Refusal) this.#log.info({ upstream: ref.name, problem: error.message }, 'tools not read')
      else fault(error, this.#log)
    }
  }
}
