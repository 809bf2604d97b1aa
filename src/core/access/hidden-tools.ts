import { LRUCache } from 'lru-cache'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'

/** How soon a change takes effect in every front; until then it costs calls no query. */
const ttl = 250
/** Organizations whose tools are cached. */
const max = 10_000

/** The tools that an organization has switched off for all its keys. */
export class HiddenTools {
  readonly #store: Store
  readonly #cache = new LRUCache<string, readonly string[]>({ max, ttl })

  constructor(store: Store) {
    this.#store = store
  }

  async of({ orgId }: Caller): Promise<readonly string[]> {
    const cached = this.#cache.get(orgId)
    if (cached) return cached
    const tools = await this.#store.hiddenTools.list(orgId)
    this.#cache.set(orgId, tools)
    return tools
  }
}
