import type { Slot } from './slot.ts'

/** Unbound slots that wait for their first run, each of an image. */
export class ReadySlots {
  #slots: { slot: Slot; image: string }[] = []

  get length(): number {
    return this.#slots.length
  }

  add(slot: Slot, image: string): void {
    this.#slots.push({ slot, image })
  }

  /** Takes the oldest of an image. */
  take(image: string): Slot | undefined {
    return this.#takeWhere((ready) => ready.image === image)[0]
  }

  /** Takes the oldest of any image. */
  takeAny(): Slot | undefined {
    return this.#slots.shift()?.slot
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
