import { LRUCache } from 'lru-cache'
import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { SeenTools } from '../upstreams/seen-tools.ts'
import type { AdminContext } from './admin.ts'
import { refreshIfChanged, type UpstreamRef } from './upstreams.ts'

/** Minimum time between two readings of one upstream, which can announce changes without end. */
const intervalMs = 60_000
/** Maximum number of upstreams whose last reading is known. */
const knownMax = 10_000
/** Maximum number of upstreams that are read at the same time; further announcements are ignored. */
const runningMax = 16

/** Reads the tools of upstreams again when they announce that these have changed, and from time to time while they are used. */
export class UpstreamRefresher {
  readonly #context: AdminContext
  readonly #log: Log
  readonly #seen: SeenTools
  readonly #everyMs: number
  readonly #readAt = new LRUCache<string, number>({ max: knownMax })
  readonly #timers = new Map<string, NodeJS.Timeout>()
  readonly #running = new Set<Promise<void>>()

  /** @param everyMs time after which the tools of an upstream that is used are read again. */
  constructor(context: AdminContext, seen: SeenTools, everyMs: number, log: Log) {
    this.#context = context
    this.#seen = seen
    this.#everyMs = everyMs
    this.#log = log
  }

  /**
   * Notes that an upstream is used. If its tools were not read for the interval, reads them.
   * @param listedAt when they were last read, before the start of this process, as ISO 8601.
   */
  noteUse(ref: UpstreamRef, listedAt: string): void {
    const readAt = this.#readAt.get(nameOf(ref))
    const ageMs = readAt === undefined ? Date.now() - Date.parse(listedAt) : monotonicMs() - readAt
    if (ageMs >= this.#everyMs) this.announce(ref)
  }

  /** Reads the tools now, or as soon as the interval permits. Changed tools are suspended, as for `refreshUpstream`. */
  announce(ref: UpstreamRef): void {
    const id = nameOf(ref)
    if (this.#timers.has(id) || this.#timers.size + this.#running.size >= runningMax) return
    const waitMs = (this.#readAt.get(id) ?? Number.NEGATIVE_INFINITY) + intervalMs - monotonicMs()
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
      await refreshIfChanged(this.#context, this.#seen, ref)
    } catch (error) {
      // It is down, or was removed; the approved tools remain.
      if (error instanceof Refusal) this.#log.info({ upstream: ref.name, problem: error.message }, 'tools not read')
      else fault(error, this.#log)
    }
  }
}

const nameOf = ({ orgId, name }: UpstreamRef): string => `${orgId} ${name}`
