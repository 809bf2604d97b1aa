import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import { ReadCache } from '../read-cache.ts'

/** Maximum number of organizations whose hidden tools are cached. */
const max = 10_000

/** Returns and caches the tools that are hidden from the keys of an organization. */
export class HiddenTools {
  readonly cache: ReadCache<readonly string[]>

  constructor(store: Pick<Store, 'version' | 'hiddenTools'>) {
    this.cache = new ReadCache<readonly string[]>(store, max, (orgId) => store.hiddenTools.list(orgId))
  }

  of({ orgId }: Caller): Promise<readonly string[]> {
    return this.cache.get(orgId)
  }
}
