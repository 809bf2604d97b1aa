import { monotonicMs } from '../../base/clock.ts'
import type { Store } from '../../store/store.ts'

/** What the runs of an org leave in the history besides what was measured; off by default. */
export interface HistorySettings {
  keep_code: boolean
  keep_output: boolean
}

const nothingKeptByDefault: HistorySettings = { keep_code: false, keep_output: false }

export const readHistorySettings = (settings: string | undefined): HistorySettings =>
  settings === undefined ? nothingKeptByDefault : { ...nothingKeptByDefault, ...(JSON.parse(settings) as object) }

/** How soon every front knows of a switch; until then it costs the runs nothing. */
const knownMs = 1_000
/** Settings of so many orgs are remembered. */
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
