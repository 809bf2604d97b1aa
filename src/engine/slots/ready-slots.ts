import type { Slot } from './slot.ts'

/** Unbound slots that wait for their first run, each of an image. */
export class ReadySlots {
  #slots: { slot: Slot; image: string }[] = []
  #wantsSpare = false

  get length(): number {
    return this.#slots.length
  }

  add(slot: Slot, image: string): void {
    this.#slots.push({ slot, image })
    this.prepareSpare(image)
  }

  /** Takes the oldest of an image. @param spare whether one with a spare interpreter is preferred, or one without. */
  take(image: string, spare: boolean): Slot | undefined {
    this.#wantsSpare ||= spare
    const isOfImage = (ready: { image: string }) => ready.image === image
    const suits = ({ slot }: { slot: Slot }) => (slot.spare === 'ready') === spare
    const preferred = this.#takeWhere((ready) => isOfImage(ready) && suits(ready))[0]
    return preferred ?? this.#takeWhere(isOfImage)[0]
  }

  /** Prepares an interpreter in one slot of an image, once a sandbox has wanted one. The next sandbox takes it. */
  prepareSpare(image: string): void {
    const slots = this.#slots.filter((ready) => ready.image === image).map(({ slot }) => slot)
    const isPrepared = slots.some(({ spare }) => spare === 'starting' || spare === 'ready')
    if (this.#wantsSpare && !isPrepared) slots.find(({ spare }) => spare === 'none')?.prepareSpare()
  }

  /** Takes the oldest of any image. */
  takeAny(): Slot | undefined {
    return this.#slots.shift()?.slot
  }

  /** Takes those whose interpreter is so old: programs of the machine may have been updated since. */
  takeAged(ageMs: number): Slot[] {
    return this.#takeWhere(({ slot }) => slot.spareAgeMs >= ageMs, this.#slots.length)
  }

  /** Takes all that are not of an image. */
  takeOthers(image: string): Slot[] {
    return this.#takeWhere((ready) => ready.image !== image, this.#slots.length)
  }

  /** @returns whether the slot was waiting. */
  remove(slot: Slot): boolean {
    return this.#takeWhere((ready) => ready.slot === slot).length > 0
  }

  #takeWhere(matches: (ready: { slot: Slot; image: string }) => boolean, most = 1): Slot[] {
    const taken = this.#slots.filter(matches).slice(0, most)
    this.#slots = this.#slots.filter((ready) => !taken.includes(ready))
    return taken.map(({ slot }) => slot)
  }
}
