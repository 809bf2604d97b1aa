import { LRUCache } from 'lru-cache'
import type { Store } from '../store/store.ts'

/** Time in milliseconds for which an entry is used without a look at the database. */
const ttl = 250

interface Entry<Value> {
  value: Promise<Value>
  /** Version of the database from which on it was read; `undefined` if it was not known. */
  version: string | undefined
}

/**
 * Caches what calls read from the database. A change by any process takes effect after a quarter of a second at most. An
 * entry stays without a query as long as no process has written to the database.
 */
export class ReadCache<Value> {
  readonly #store: Pick<Store, 'version'>
  readonly #read: (key: string) => Promise<Value>
  readonly entries: LRUCache<string, Entry<Value>>

  /** @param max number of entries. @param read reads the value of a key. */
  constructor(store: Pick<Store, 'version'>, max: number, read: (key: string) => Promise<Value>) {
    this.#store = store
    this.#read = read
    this.entries = new LRUCache({ max, ttl, allowStale: true, noDeleteOnStaleGet: true })
  }

  /** Returns a value: the same object until it was read again. @throws what `read` throws, which is not cached. */
  get(key: string): Promise<Value> {
    const entry = this.entries.get(key)
    if (entry && this.entries.getRemainingTTL(key) > 0) return entry.value
    const version = this.#store.version()
    if (entry === undefined || version === undefined || version !== entry.version) return this.#readAt(version, key)
    this.entries.set(key, entry)
    return entry.value
  }

  /** Returns a value as it is now. */
  latest(key: string): Promise<Value> {
    return this.#readAt(this.#store.version(), key)
  }

  #readAt(version: string | undefined, key: string): Promise<Value> {
    const value = this.#read(key)
    const entry = { value, version }
    this.entries.set(key, entry)
    value.catch(() => {
      if (this.entries.peek(key) === entry) this.entries.delete(key)
    })
    return value
  }
}
