import { BackgroundJob } from '../../base/background-job.ts'
import type { Limits, RunSpec } from '../../base/run.ts'
import { type BoundSlot, bindingOf, isForOneRun, mostDispensable, retired } from './bound-slot.ts'
import { SlotLeft } from './create-slot.ts'
import { memoryIsShort } from './memory-pressure.ts'
import type { ImageIdOf, Lease, MakeSlot, PoolEvents, PoolSettings } from './pool-settings.ts'
import { ReadySlots } from './ready-slots.ts'
import { Removals } from './removals.ts'
import type { Slot } from './slot.ts'

/** How often the machine's memory and ready slots are looked at: a slot is ended in less. */
const pressureLookMs = 500
/** The replacement of a slot waits until its sandbox has started, unless it was the last one. */
const sandboxStartsWithinMs = 200

const retryDelayMs = (failures: number): number => Math.min(250 * 2 ** (failures - 1), 10_000)

/**
 * The slots of this machine. A new one is unbound; its first run binds it permanently to its key and profile revision. It serves
 * one run at a time. It ends after idling, its share of runs or the revocation of its key, for a short pool, and when in doubt.
 */
export class SlotPool {
  readonly #make: MakeSlot
  readonly #settings: PoolSettings
  readonly #events: PoolEvents
  readonly #memoryIsShort: () => boolean
  readonly #imageIdOf: ImageIdOf
  readonly #pressureRelief: BackgroundJob
  readonly #ready = new ReadySlots()
  readonly #idle: BoundSlot[] = []
  readonly #busy = new Set<BoundSlot>()
  /** Being made or being ended. None of these rejects. */
  readonly #inTransit = new Set<Promise<unknown>>()
  /** Slots that could not be removed. */
  readonly #undying: Removals
  /** Every slot from before it is made until nothing of it is left: what the ceiling is about. */
  #total = 0
  #failures = 0
  #lastFailure: string | undefined
  #refillTimer: NodeJS.Timeout | undefined
  #refilling: Promise<void> | undefined
  #closed = false

  /** @param isShort whether the machine has little memory left. */
  constructor(
    make: MakeSlot,
    settings: PoolSettings,
    events: PoolEvents,
    isShort: () => boolean = memoryIsShort,
    imageIdOf: ImageIdOf = () => '',
  ) {
    this.#imageIdOf = imageIdOf
    this.#make = make
    this.#settings = settings
    this.#events = events
    this.#memoryIsShort = isShort
    this.#undying = new Removals((error) => events.failed(error))
    this.#pressureRelief = new BackgroundJob({
      everyMs: pressureLookMs,
      retryMs: 0,
      work: () => this.#relieve(),
      onFault: (error) => events.failed(error),
    })
    this.#pressureRelief.start()
  }

  /** Why no slot is available, from the last attempt; `undefined` if slots are available. */
  get trouble(): string | undefined {
    if (this.#closed) return 'the pool is closed'
    const { slotsMax } = this.#settings
    return this.#undying.size >= slotsMax ? `none of the ${slotsMax} slots could be removed` : this.#lastFailure
  }

  get size(): { ready: number; idle: number; busy: number; undying: number; inTransit: number } {
    return {
      ready: this.#ready.length,
      idle: this.#idle.length,
      busy: this.#busy.size,
      undying: this.#undying.size,
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
   * A slot for this run: an idle one of the same binding, else a ready one, else a new one. @throws what making one throws.
   * The caller holds one of the machine's places to run in, and there are no more places than slots.
   */
  async acquire(spec: RunSpec): Promise<Lease> {
    if (this.#closed) throw new Error('the pool is closed')
    const image = this.#imageIdOf(spec.image)
    const binding = bindingOf(spec, image)
    const bound = this.#takeIdle(binding) ?? (await this.#bindAnother(spec, binding, image))
    return { slot: bound.slot, release: () => this.#release(bound, spec) }
  }

  async #bindAnother(spec: RunSpec, binding: string, image: string): Promise<BoundSlot> {
    const slot = await this.#takeFresh(image)
    const { orgId, keyId } = spec
    const bound: BoundSlot = { slot, binding, orgId, keyId, idleTimer: undefined }
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

  /**
   * A slot for a sandbox, for the rest of its life. It counts as one of the slots of this machine. @param takesSpare whether
   * an interpreter that waits in it is of use. @throws what making a slot throws, and Error when all slots are taken.
   */
  async acquireForSandbox(limits: Limits, takesSpare = false): Promise<Lease> {
    const slot = await this.#takeFresh(this.#imageIdOf(undefined), takesSpare)
    if (!this.#refillTimer) this.#refillAfter(this.#ready.length > 0 ? sandboxStartsWithinMs : 0)
    try {
      slot.bind(limits)
      return { slot, release: () => this.#end(slot) }
    } catch (error) {
      await this.#end(slot)
      throw error
    }
  }

  /** Ends the idle slots of a key; its busy ones end with their run. */
  async retireKey(keyId: string): Promise<void> {
    for (const bound of this.#busy) if (bound.keyId === keyId) bound.binding = retired
    await Promise.all(this.#idle.filter((bound) => bound.keyId === keyId).map((bound) => this.#retireIdle(bound)))
  }

  /** Ends every slot that is not busy, and accepts no more work. What cannot be removed is left to the next start. */
  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#refillTimer)
    await this.#pressureRelief.stop()
    await this.#refilling
    await Promise.all([
      ...this.#ready.takeOthers('none').map((slot) => this.#end(slot)),
      ...[...this.#idle].map((bound) => this.#retireIdle(bound)),
    ])
    while (this.#inTransit.size > 0) await Promise.all(this.#inTransit)
    await this.#undying.close()
  }

  #takeIdle(binding: string): BoundSlot | undefined {
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
  async #takeFresh(image: string, takesSpare = false): Promise<Slot> {
    for (;;) {
      const ready = this.#takeReady(image, takesSpare)
      if (ready) return ready
      if (this.#total < this.#settings.slotsMax) return this.#makeNow(image)
      const unwanted = this.#ready.takeAny()
      const dispensable = mostDispensable(this.#idle)
      if (unwanted) await this.#end(unwanted)
      else if (dispensable) await this.#retireIdle(dispensable)
      else if (this.#inTransit.size > 0) await Promise.race(this.#inTransit)
      else throw new Error(`all ${this.#settings.slotsMax} slots are taken (${this.#undying.size} cannot be removed)`)
    }
  }

  /** Gives memory back, one slot at a time, before the kernel takes it. A slot that ends slowly does not keep the next. */
  async #relieve(): Promise<void> {
    for (const slot of this.#ready.takeAged(this.#settings.zygoteMaxAgeMs))
      void this.#end(slot).then(() => this.#refill())
    if (this.#closed || !this.#memoryIsShort()) return
    const dispensable = mostDispensable(this.#idle)
    if (dispensable) void this.#retireIdle(dispensable)
  }

  #takeReady(image: string, takesSpare: boolean): Slot | undefined {
    for (let slot = this.#ready.take(image, takesSpare); slot; slot = this.#ready.take(image, takesSpare)) {
      if (slot.healthy) return slot
      void this.#end(slot)
    }
    return undefined
  }

  /** Replaces the ready slots that are not of the default image: its name refers to another one now. */
  renewReady(): void {
    for (const slot of this.#ready.takeOthers(this.#imageIdOf(undefined))) void this.#end(slot)
    this.#refill()
  }

  /**
   * For a run that waits. A runtime may fail once in ten thousand times, at the kernel's cgroup files above all; nothing
   * of the run has begun then, so it is tried a second time. What fails twice is out of order.
   */
  async #makeNow(image: string): Promise<Slot> {
    try {
      const slot = await this.#transit(() => this.#create(image)).catch((error: unknown) => {
        this.#events.failed(error)
        return this.#transit(() => this.#create(image))
      })
      this.#succeeded()
      return slot
    } catch (error) {
      this.#failed(error)
      throw error
    }
  }

  async #release(bound: BoundSlot, spec: RunSpec): Promise<void> {
    if (!this.#busy.delete(bound)) return
    const { slot } = bound
    const { idleMs, runsPerSlot, zygoteMaxAgeMs } = this.#settings
    const youngMs = zygoteMaxAgeMs - slot.zygoteAgeMs
    const isSpent = isForOneRun(spec) || bound.binding === retired || slot.runs >= runsPerSlot || youngMs <= 0
    if (this.#closed || isSpent || slot.degraded || !slot.healthy || this.#memoryIsShort()) {
      await this.#end(slot)
      // Holds the place of its run until then: slots that cannot be removed leave fewer runs at once, first to their org.
      return this.#undying.removed(slot)
    }
    bound.idleTimer = setTimeout(() => void this.#retireIdle(bound), Math.min(idleMs, youngMs))
    this.#idle.push(bound)
    // After the answer: who calls again at once pays as before, who calls a little later finds all done.
    if (this.#settings.prewarmJails) slot.prewarm(spec)
  }

  async #retireIdle(bound: BoundSlot): Promise<void> {
    const index = this.#idle.indexOf(bound)
    if (index < 0) return
    this.#idle.splice(index, 1)
    clearTimeout(bound.idleTimer)
    await this.#end(bound.slot)
  }

  async #create(image: string): Promise<Slot> {
    this.#total += 1
    try {
      return await this.#make(image)
    } catch (error) {
      if (error instanceof SlotLeft) this.#keepRemoving(error, error.remove)
      else this.#total -= 1
      throw error
    }
  }

  /** Makes a slot and puts it with the ready ones. */
  async #stock(): Promise<void> {
    const image = this.#imageIdOf(undefined)
    const slot = await this.#create(image)
    this.#ready.add(slot, image)
    void slot.lost.then(async () => {
      if (!this.#ready.remove(slot)) return
      await this.#end(slot)
      // Not at once: where something kills every new slot, that would be a circle without a pause.
      this.#refillAfter(retryDelayMs(1))
    })
  }

  /** Never rejects: what could not be removed counts as a slot until it is. */
  async #end(slot: Slot): Promise<void> {
    try {
      await this.#transit(() => slot.destroy())
      this.#total -= 1
    } catch (error) {
      this.#events.failed(error)
      this.#keepRemoving(slot, () => slot.destroy())
    }
  }

  #keepRemoving(what: object, remove: () => Promise<void>): void {
    const gone = () => {
      this.#total -= 1
      this.#events.changed()
      this.#refill()
    }
    this.#undying.add(what, remove, gone)
    this.#events.changed()
  }

  /** Keeps ready slots in stock, one at a time, so that a burst does not start many creations at the same time. */
  #refill(): void {
    if (this.#closed || this.#refilling || this.#refillTimer || this.#memoryIsShort()) return
    this.#ready.prepareSpare(this.#imageIdOf(undefined))
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
