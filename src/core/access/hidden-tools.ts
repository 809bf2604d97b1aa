import { LRUCache } from 'lru-cache'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'

/** Time after which a change takes effect in every front, in milliseconds. Until then, calls use the cache. */
const ttl = 250
/** Maximum number of organizations whose hidden tools are cached. */
const max = 10_000

/** Returns and caches the tools that are hidden from the keys of an organization. */
export class HiddenTools {
  readonly #store: Store
  readonly cache = new LRUCache<string, readonly string[]>({ max, ttl })

  constructor(store: Store) {
    this.#store = store
  }

  async of({ orgId }: Caller): Promise<readonly string[]> {
    const cached = this.cache.get(orgId)
    if (cached) return cached
    const tools = await this.#store.hiddenTools.list(orgId)
    this.cache.set(orgId, tools)
    return tools
  }
}
