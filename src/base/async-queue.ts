/** How much a queue holds, and what happens to an item that does not fit. */
export interface QueueOptions<Item> {
  /** Total size of the items that may wait. */
  capacity: number
  /** Size of one item in the unit of `capacity`; 1 by default, so that `capacity` counts items. */
  sizeOf?: (item: Item) => number
  /** `refuse`: `push` returns false. `drop_oldest`: the oldest items make room. */
  overflow?: 'refuse' | 'drop_oldest'
  /** Called with each item that the consumer takes. */
  onTake?: (item: Item) => void
  /** Called once, when the consumer stops before the end. */
  onAbandon?: () => void
}

type State = { kind: 'open' } | { kind: 'closed' } | { kind: 'failed'; error: Error }

/**
 * A bounded first-in-first-out queue from any number of producers to one consumer, which reads it with `for await`.
 * Producers add with `push`, which never waits, or with `send`, which applies backpressure.
 */
export class AsyncQueue<Item> implements AsyncIterableIterator<Item, void, undefined> {
  readonly #options: QueueOptions<Item>
  readonly #items: Item[] = []
  #size = 0
  /** Counts items that were taken or dropped, so that `#taken + index` identifies an item that waits. */
  #taken = 0
  /** Producers in `send`, by the number of their item. */
  readonly #senders = new Map<number, (wasTaken: boolean) => void>()
  #reader: PromiseWithResolvers<IteratorResult<Item, void>> | undefined
  #state: State = { kind: 'open' }

  constructor(options: QueueOptions<Item>) {
    this.#options = options
  }

  /** Adds an item. @returns whether it was accepted: false when the queue is full or has ended. */
  push(item: Item): boolean {
    if (this.#state.kind !== 'open') return false
    if (this.#deliver(item)) return true
    if (!this.#makeRoom(this.#sizeOf(item))) return false
    this.#append(item)
    return true
  }

  /**
   * Adds an item and waits until the consumer has taken it. The capacity does not apply: a producer that awaits each
   * call has one item in the queue.
   * @returns whether the item was taken: false when the queue ended first.
   */
  send(item: Item): Promise<boolean> {
    if (this.#state.kind !== 'open') return Promise.resolve(false)
    if (this.#deliver(item)) return Promise.resolve(true)
    const number = this.#taken + this.#items.length
    this.#append(item)
    return new Promise((resolve) => this.#senders.set(number, resolve))
  }

  /** Ends the queue: waiting items can still be read, further ones are refused. */
  close(): void {
    this.#end({ kind: 'closed' })
  }

  /** Ends the queue with an error, which the consumer receives after the waiting items. */
  fail(error: Error): void {
    this.#end({ kind: 'failed', error })
  }

  /** Ends the queue and drops the waiting items. */
  discard(): void {
    while (this.#items.length > 0) this.#remove(false)
    this.#state = { kind: 'closed' }
    this.#endReader()
  }

  /** @throws Error when a read is pending already. Rejects with the error of `fail`. */
  next(): Promise<IteratorResult<Item, void>> {
    if (this.#reader) throw new Error('a queue has one reader at a time')
    if (this.#items.length > 0) {
      const item = this.#remove(true)
      this.#options.onTake?.(item)
      return Promise.resolve({ value: item, done: false })
    }
    const reader = Promise.withResolvers<IteratorResult<Item, void>>()
    this.#reader = reader
    if (this.#state.kind !== 'open') this.#endReader()
    return reader.promise
  }

  /** Called by `for await` when its loop is left early. */
  return(): Promise<IteratorResult<Item, void>> {
    const isEarly = this.#state.kind === 'open' || this.#items.length > 0
    this.discard()
    if (isEarly) this.#options.onAbandon?.()
    return Promise.resolve({ value: undefined, done: true })
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  #sizeOf(item: Item): number {
    return this.#options.sizeOf?.(item) ?? 1
  }

  /** Hands an item to a consumer that waits for one. */
  #deliver(item: Item): boolean {
    const reader = this.#reader
    if (!reader) return false
    this.#reader = undefined
    this.#taken += 1
    this.#options.onTake?.(item)
    reader.resolve({ value: item, done: false })
    return true
  }

  #makeRoom(neededSize: number): boolean {
    const { capacity, overflow = 'refuse' } = this.#options
    if (neededSize > capacity) return false
    if (overflow === 'drop_oldest') while (this.#size + neededSize > capacity) this.#remove(false)
    return this.#size + neededSize <= capacity
  }

  #append(item: Item): void {
    this.#items.push(item)
    this.#size += this.#sizeOf(item)
  }

  #remove(isTaken: boolean): Item {
    const item = this.#items.shift() as Item
    this.#size -= this.#sizeOf(item)
    const number = this.#taken++
    if (this.#senders.size > 0) {
      this.#senders.get(number)?.(isTaken)
      this.#senders.delete(number)
    }
    return item
  }

  #end(state: State): void {
    if (this.#state.kind !== 'open') return
    this.#state = state
    this.#endReader()
  }

  #endReader(): void {
    const reader = this.#reader
    if (!reader) return
    this.#reader = undefined
    if (this.#state.kind === 'failed') reader.reject(this.#state.error)
    else reader.resolve({ value: undefined, done: true })
    // As with a generator, the error is given once.
    this.#state = { kind: 'closed' }
  }
}
