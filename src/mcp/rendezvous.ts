/**
 * Hands items from one producer to one consumer, one at a time: `give` resolves when the item was taken, so a slow
 * consumer slows its producer and nothing piles up. When the consumer leaves, further items are dropped.
 */
export class Rendezvous<Item> implements AsyncIterable<Item> {
  #item: { value: Item; taken: () => void } | undefined
  #wake: (() => void) | undefined
  #closed = false
  #left = false

  async give(value: Item): Promise<void> {
    if (this.#left || this.#closed) return
    await new Promise<void>((taken) => {
      this.#item = { value, taken }
      this.#wake?.()
    })
  }

  /** No further item comes. */
  close(): void {
    this.#closed = true
    this.#wake?.()
  }

  /** Nobody takes items any more; what is on its way is dropped. */
  leave(): void {
    this.#left = true
    this.#item?.taken()
    this.#item = undefined
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined> {
    try {
      for (;;) {
        const item = this.#item
        if (item !== undefined) {
          this.#item = undefined
          item.taken()
          yield item.value
        } else if (this.#closed) return
        else {
          await new Promise<void>((wake) => {
            this.#wake = wake
          })
        }
      }
    } finally {
      this.leave()
    }
  }
}
