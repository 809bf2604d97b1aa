import { monotonicMs } from '../../base/clock.ts'
import type { Store } from '../../store/store.ts'

/** Additional data that is stored for the runs of an organization. Off by default. */
export interface HistorySettings {
  keep_code: boolean
  keep_output: boolean
}

const nothingKeptByDefault: HistorySettings = { keep_code: false, keep_output: false }

export const readHistorySettings = (settings: string | undefined): HistorySettings =>
  settings === undefined ? nothingKeptByDefault : { ...nothingKeptByDefault, ...(JSON.parse(settings) as object) }

/** Time after which a change takes effect in every front. Until then, runs use the cache and need no query. */
const knownMs = 1_000
/** Maximum number of organizations whose settings are cached. */
const orgsMax = 10_000

export class KnownHistorySettings {
  readonly #store: Store
  readonly #known = new Map<string, { settings: HistorySettings; untilMs: number }>()

  constructor(store: Store) {
    this.#store = store
  }

  async of(orgId: string): Promise<HistorySettings> {
    const known = this.#known.get(orgId)
    if (known && known.untilMs > monotonicMs()) return known.settings
    const settings = readHistorySettings(await this.#store.orgSettings.get(orgId))
    if (this.#known.size >= orgsMax) this.#known.clear()
    this.#known.set(orgId, { settings, untilMs: monotonicMs() + knownMs })
    return settings
  }
}
