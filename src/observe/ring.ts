/** Keeps the latest entries, up to a number. The oldest one is dropped for each further entry. */
export class Ring<Entry> {
  readonly #entries: Entry[] = []
  #capacity: number
  /** Where the next entry goes, once the ring is full. */
  #next = 0

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  get size(): number {
    return this.#entries.length
  }

  get capacity(): number {
    return this.#capacity
  }

  add(entry: Entry): void {
    if (this.#entries.length < this.#capacity) {
      this.#entries.push(entry)
      return
    }
    this.#entries[this.#next] = entry
    this.#next = (this.#next + 1) % this.#capacity
  }

  /** Returns the entries, newest first. */
  newest(): Entry[] {
    return [...this.#entries.slice(this.#next), ...this.#entries.slice(0, this.#next)].reverse()
  }

  clear(): void {
    this.#entries.length = 0
    this.#next = 0
  }

  /** Changes the capacity, and keeps the newest entries. */
  resize(capacity: number): void {
    const kept = this.newest().slice(0, capacity).reverse()
    this.clear()
    this.#capacity = capacity
    for (const entry of kept) this.add(entry)
  }
}
