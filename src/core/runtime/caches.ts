/** A cache of the API server, without its values. */
export interface Cache {
  /** What its keys and values are. */
  readonly content: string
  readonly max: number
  /** Time after which an entry is read again, in milliseconds; 0: it has none. */
  readonly ttlMs: number
  size(): number
  keys(): Iterable<string>
  clear(): void
  delete(key: string): boolean
  /** Removes expired entries. @returns the number of removed ones. */
  reap(): number
}

interface LruCache {
  readonly size: number
  readonly max: number
  readonly ttl: number
  keys(): Iterable<string>
  clear(): void
  delete(key: string): boolean
  purgeStale(): boolean
}

/** Makes a cache visible. @param content what its keys and values are. */
export const toCache = (content: string, cache: LruCache): Cache => ({
  content,
  max: cache.max,
  ttlMs: cache.ttl,
  size: () => cache.size,
  keys: () => cache.keys(),
  clear: () => cache.clear(),
  delete: (key) => cache.delete(key),
  reap: () => {
    const before = cache.size
    cache.purgeStale()
    return before - cache.size
  },
})
