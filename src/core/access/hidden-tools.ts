import { monotonicMs } from '../../base/clock.ts'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'

/** How soon every front knows of a switch; until then it costs the calls nothing. */
const knownMs = 1_000

/** Which tools an org has switched off, for all its keys. */
export class HiddenTools {
  readonly #store: Store
  readonly #known = new Map<string, { tools: readonly string[]; untilMs: number }>()

  constructor(store: Store) {
    this.#store = store
  }

  async of({ orgId }: Caller): Promise<readonly string[]> {
    const known = this.#known.get(orgId)
    if (known && known.untilMs > monotonicMs()) return known.tools
    const tools = await this.#store.hiddenTools.list(orgId)
    this.#known.set(orgId, { tools, untilMs: monotonicMs() + knownMs })
    return tools
  }
}
