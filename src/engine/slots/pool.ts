import type { RunSpec } from '../../base/run.ts'
import { memoryIsShort } from './memory-pressure.ts'
import type { Slot } from './slot.ts'

export interface PoolSettings {
  /** Slots at once on this machine, bound or not; at least the number of runs at once. */
  slotsMax: number
  /** Unbound slots kept waiting. */
  slotsReady: number
  /** A bound slot that idles this long ends. */
  idleMs: number
  /** A slot ends after so many runs. */
  runsPerSlot: number
  /** A slot whose language host is this old ends before its next run. */
  zygoteMaxAgeMs: number
  /** Whether an idle slot has the jail of its next run waiting. */
  prewarmJails: boolean
}

/** The state of the pool, for metrics. */
export interface PoolEvents {
  /** A slot could not be made in the background, or not be ended. */
  failed(error: unknown): void
  /** `trouble` may have changed. */
  changed(): void
}

/** Makes an unbound slot. */
export type MakeSlot = () => Promise<Slot>

interface Bound {
  slot: Slot
  binding: string
  orgId: string
  keyId: string
  /** Set while idle. */
  idleTimer: NodeJS.Timeout | undefined
}

/** A slot for one run; the pool takes it back, or ends it, on `release`. */
export interface Lease {
  slot: Slot
  release(): Promise<void>
}

/** How often the machine's memory is looked at: a slot is ended in less. */
const pressureLookMs = 500

/** How long to wait before making the next ready slot after so many failures in a row. */
const retryDelayMs = (failures: number): number => Math.min(250 * 2 ** (failures - 1), 10_000)

/**
 * The slots of this machine. A new one is unbound; its first run binds it to that run's key and profile
 * revision for good. It serves one run at a time and ends after idling, after its share of runs, when its key is
 * revoked, when the pool is short, or when anything about it is in doubt.
 */
export class SlotPool {
  readonly #make: MakeSlot
  readonly #settings: PoolSettings
  readonly #events: PoolEvents
  readonly #memoryIsShort: () => boolean
  readonly #pressureTimer: NodeJS.Timeout
  readonly #ready: Slot[] = []
  readonly #idle: Bound[] = []
  readonly #busy = new Set<Bound>()
  /** Being made or being ended. None of these rejects. */
  readonly #inTransit = new Set<Promise<unknown>>()
  /** Every slot from before it is made until it is gone: what the ceiling is about. */
  #total = 0
  #failures = 0
  #lastFailure: string | undefined
  #refillTimer: NodeJS.Timeout | undefined
  #refilling: Promise<void> | undefined
  #closed = false

  /** @param isShort whether the machine has little memory left. */
  constructor(make: MakeSlot, settings: PoolSettings, events: PoolEvents, isShort: () => boolean = memoryIsShort) {
    this.#make = make
    this.#settings = settings
    this.#events = events
    this.#memoryIsShort = isShort
    this.#pressureTimer = setInterval(() => void this.#relieve(), pressureLookMs)
    this.#pressureTimer.unref()
  }

  /** Why no slot can be had, as far as the last attempt shows; `undefined` when all is well. */
  get trouble(): string | undefined {
    return this.#closed ? 'the pool is closed' : this.#lastFailure
  }

  get size(): { ready: number; idle: number; busy: number; inTransit: number } {
    return {
      ready: this.#ready.length,
      idle: this.#idle.length,
      busy: this.#busy.size,
      inTransit: this.#inTransit.size,
    }
  }

  /** Idle slots that have the jail of their next run waiting. */
  get jailsWaiting(): number {
    return this.#idle.filter(({ slot }) => slot.prewarmed === 'ready').length
  }

  /** Makes the first ready slots. @throws what making them throws. */
  async open(): Promise<void> {
    while (this.#ready.length < this.#settings.slotsReady) await this.#transit(() => this.#stock())
  }

  /**
   * A slot for this run: an idle one of the same binding, else a ready one, else a new one.
   * The caller holds one of the machine's places to run in, and there are no more places than slots.
   * @throws what making a slot throws.
   */
  async acquire(spec: RunSpec): Promise<Lease> {
    if (this.#closed) throw new Error('the pool is closed')
    const binding = bindingOf(spec)
    const bound = this.#takeIdle(binding) ?? (await this.#bindAnother(spec, binding))
    return { slot: bound.slot, release: () => this.#release(bound, spec) }
  }

  async #bindAnother(spec: RunSpec, binding: string): Promise<Bound> {
    const slot = await this.#takeFresh()
    const { orgId, keyId } = spec
    const bound: Bound = { slot, binding, orgId, keyId, idleTimer: undefined }
    this.#busy.add(bound)
    void slot.lost.then(() => this.#retireIdle(bound))
    this.#refill()
    try {
      slot.bind(spec.limits)
      return bound
    } catch (error) {
      this.#busy.delete(bound)
      await this.#end(slot)
      throw error
    }
  }

  /** Ends the idle slots of a key; its busy ones end with their run. */
  async retireKey(keyId: string): Promise<void> {
    for (const bound of this.#busy) if (bound.keyId === keyId) bound.binding = retired
    await Promise.all(this.#idle.filter((bound) => bound.keyId === keyId).map((bound) => this.#retireIdle(bound)))
  }

  /** Ends every slot that is not busy, and accepts no more work. */
  async close(): Promise<void> {
    this.#closed = true
    clearInterval(this.#pressureTimer)
    clearTimeout(this.#refillTimer)
    await this.#refilling
    const ready = this.#ready.splice(0)
    await Promise.all([
      ...ready.map((slot) => this.#end(slot)),
      ...[...this.#idle].map((bound) => this.#retireIdle(bound)),
    ])
  }

  #takeIdle(binding: string): Bound | undefined {
    const index = this.#idle.findLastIndex((bound) => bound.binding === binding)
    if (index < 0) return undefined
    const bound = this.#idle.splice(index, 1)[0]!
    clearTimeout(bound.idleTimer)
    if (!bound.slot.healthy) {
      void this.#end(bound.slot)
      return this.#takeIdle(binding)
    }
    this.#busy.add(bound)
    return bound
  }

  /** An unbound slot: a ready one, or else one that is made now, where there is room or when there is. */
  async #takeFresh(): Promise<Slot> {
    for (;;) {
      const ready = this.#takeReady()
      if (ready) return ready
      if (this.#total < this.#settings.slotsMax) return this.#makeNow()
      const dispensable = this.#mostDispensable()
      if (dispensable) await this.#retireIdle(dispensable)
      else if (this.#inTransit.size > 0) await Promise.race(this.#inTransit)
      else throw new Error(`all ${this.#settings.slotsMax} slots are taken`)
    }
  }

  /** Of the org that has most slots idling, the one that idled longest: one org's many keys do not cost another its few. */
  #mostDispensable(): Bound | undefined {
    const idling = new Map<string, number>()
    for (const { orgId } of this.#idle) idling.set(orgId, (idling.get(orgId) ?? 0) + 1)
    const most = Math.max(...idling.values())
    return this.#idle.find(({ orgId }) => idling.get(orgId) === most)
  }

  /** Gives memory back, one slot at a time, before the kernel takes it from somebody. */
  async #relieve(): Promise<void> {
    if (this.#closed || !this.#memoryIsShort()) return
    const dispensable = this.#mostDispensable()
    if (dispensable) await this.#retireIdle(dispensable)
  }

  #takeReady(): Slot | undefined {
    for (let slot = this.#ready.shift(); slot; slot = this.#ready.shift()) {
      if (slot.healthy) return slot
      void this.#end(slot)
    }
    return undefined
  }

  /**
   * For a run that waits. A runtime may fail once in ten thousand times, at the kernel's cgroup files above all; nothing
   * of the run has begun then, so it is tried a second time. What fails twice is out of order.
   */
  async #makeNow(): Promise<Slot> {
    try {
      const slot = await this.#transit(() => this.#create()).catch((error: unknown) => {
        this.#events.failed(error)
        return this.#transit(() => this.#create())
      })
      this.#succeeded()
      return slot
    } catch (error) {
      this.#failed(error)
      throw error
    }
  }

  async #release(bound: Bound, spec: RunSpec): Promise<void> {
    if (!this.#busy.delete(bound)) return
    const { slot } = bound
    const { idleMs, runsPerSlot, zygoteMaxAgeMs } = this.#settings
    const youngMs = zygoteMaxAgeMs - slot.zygoteAgeMs
    const isSpent = isForOneRun(spec) || bound.binding === retired || slot.runs >= runsPerSlot || youngMs <= 0
    if (this.#closed || isSpent || slot.degraded || !slot.healthy || this.#memoryIsShort()) return this.#end(slot)
    bound.idleTimer = setTimeout(() => void this.#retireIdle(bound), Math.min(idleMs, youngMs))
    this.#idle.push(bound)
    // After the answer: who calls again at once pays as before, who calls a little later finds all done.
    if (this.#settings.prewarmJails) slot.prewarm(spec)
  }

  async #retireIdle(bound: Bound): Promise<void> {
    const index = this.#idle.indexOf(bound)
    if (index < 0) return
    this.#idle.splice(index, 1)
    clearTimeout(bound.idleTimer)
    await this.#end(bound.slot)
  }

  async #create(): Promise<Slot> {
    this.#total += 1
    try {
      return await this.#make()
    } catch (error) {
      this.#total -= 1
      throw error
    }
  }

  /** Makes a slot and puts it with the ready ones. */
  async #stock(): Promise<void> {
    const slot = await this.#create()
    this.#ready.push(slot)
    void slot.lost.then(async () => {
      const index = this.#ready.indexOf(slot)
      if (index < 0) return
      this.#ready.splice(index, 1)
      await this.#end(slot)
      // Not at once: where something kills every new slot, that would be a circle without a pause.
      this.#refillAfter(retryDelayMs(1))
    })
  }

  async #end(slot: Slot): Promise<void> {
    try {
      await this.#transit(() => slot.destroy())
    } catch (error) {
      this.#events.failed(error)
    } finally {
      this.#total -= 1
    }
  }

  /** Keeps ready slots in stock, one at a time, so that a burst does not start a herd of makers. */
  #refill(): void {
    if (this.#closed || this.#refilling || this.#refillTimer || this.#memoryIsShort()) return
    if (this.#ready.length >= this.#settings.slotsReady || this.#total >= this.#settings.slotsMax) return
    this.#refilling = this.#transit(() => this.#stock())
      .then(
        () => this.#succeeded(),
        (error) => this.#failed(error),
      )
      .finally(() => {
        this.#refilling = undefined
        if (this.#failures === 0) this.#refill()
      })
  }

  #succeeded(): void {
    this.#failures = 0
    this.#lastFailure = undefined
    this.#events.changed()
  }

  #failed(error: unknown): void {
    this.#failures += 1
    this.#lastFailure = error instanceof Error ? error.message : String(error)
    this.#events.failed(error)
    this.#events.changed()
    this.#refillAfter(retryDelayMs(this.#failures))
  }

  #refillAfter(delayMs: number): void {
    if (this.#closed) return
    clearTimeout(this.#refillTimer)
    this.#refillTimer = setTimeout(() => {
      this.#refillTimer = undefined
      this.#refill()
    }, delayMs)
  }

  async #transit<T>(work: () => Promise<T>): Promise<T> {
    const working = work()
    const settled = working.then(
      () => {},
      () => {},
    )
    this.#inTransit.add(settled)
    try {
      return await working
    } finally {
      this.#inTransit.delete(settled)
    }
  }
}

/** No run has this binding, so a slot that carries it is never taken again. */
const retired = ''

const isForOneRun = ({ reuse, thread }: RunSpec): boolean =>
  reuse === 'never' || (reuse === 'thread' && thread === undefined)

function bindingOf(spec: RunSpec): string {
  if (isForOneRun(spec)) return spec.runId
  const { keyId, profile, profileRevision } = spec
  return JSON.stringify([keyId, profile, profileRevision, ...(spec.reuse === 'thread' ? [spec.thread?.id] : [])])
}
