import { LRUCache } from 'lru-cache'
import { monotonicMs, timestamp } from '../../base/clock.ts'
import { ProfileRefused, Refusal, type SettingProblem, StartRefused } from '../../base/errors.ts'
import type { Profile } from '../../base/profile.ts'
import type { StoredProfileRow } from '../../store/admin-rows.ts'
import type { AdminStore } from '../../store/admin-store.ts'
import type { Vault } from './vault.ts'

export const placeOfProfile = (orgId: string, name: string): string => `stored_profiles/${orgId}/${name}/settings`

/** Time after which a change takes effect in every front. Until then, calls use the cache and need no query. */
const knownMs = 500
/** Maximum number of cached profiles. Others are read and checked again when they are used. */
const knownMax = 10_000

/**
 * Creates a profile from settings as in the configuration file; absent settings have the value of `default`.
 * @throws StartRefused with the name of the invalid setting.
 */
export type ReadProfile = (name: string, written: Readonly<Record<string, unknown>>) => Profile

/** The profiles of the configuration and those of organizations. */
export class Profiles {
  readonly #store: AdminStore
  readonly #vault: Vault
  readonly #configured: ReadonlyMap<string, Profile>
  readonly #read: ReadProfile
  readonly cache = new LRUCache<string, { row: StoredProfileRow; profile: Profile; untilMs: number }>({
    max: knownMax,
  })

  constructor(store: AdminStore, vault: Vault, configured: readonly Profile[], read: ReadProfile) {
    this.#store = store
    this.#vault = vault
    this.#configured = new Map(configured.map((profile) => [profile.name, profile]))
    this.#read = read
  }

  isConfigured(name: string): boolean {
    return this.#configured.has(name)
  }

  get configured(): readonly Profile[] {
    return [...this.#configured.values()]
  }

  /** Returns the profiles of the configuration that an organization may use. */
  offeredTo(orgId: string): readonly Profile[] {
    return this.configured.filter(({ orgs }) => orgs.length === 0 || orgs.includes(orgId))
  }

  /**
   * Returns the current profile with this name, as the same object until it changes. A profile of the configuration that
   * the organization may not use is reported as nonexistent.
   */
  async get(orgId: string, name: string): Promise<Profile | undefined> {
    const configured = this.#configured.get(name)
    if (configured) return configured.orgs.length === 0 || configured.orgs.includes(orgId) ? configured : undefined
    const key = `${orgId}/${name}`
    const known = this.cache.get(key)
    if (known && known.untilMs > monotonicMs()) return known.profile
    const row = await this.#store.storedProfiles.get(orgId, name)
    if (row === undefined) {
      this.cache.delete(key)
      return undefined
    }
    const profile = known?.row.settings === row.settings ? known.profile : await this.#load(row)
    this.cache.set(key, { row, profile, untilMs: monotonicMs() + knownMs })
    return profile
  }

  /** Returns the settings of a stored profile, as they were written. */
  settingsOf({ orgId, name, settings }: StoredProfileRow): Record<string, unknown> {
    return JSON.parse(this.#vault.open(placeOfProfile(orgId, name), settings)) as Record<string, unknown>
  }

  /**
   * Checks the settings of a profile and seals them for its row.
   * @throws Refusal invalid_argument with the name of the setting.
   */
  sealed(orgId: string, name: string, written: Readonly<Record<string, unknown>>): string {
    const profile = this.#readRefusing(name, written)
    if (written.orgs !== undefined) {
      const problem = 'cannot be set here: this profile belongs to one organization'
      throw new Refusal('invalid_argument', { field: 'orgs', problem })
    }
    // At start, the probe has imported only the modules of the configuration.
    const approved = this.configured.flatMap(({ preload }) => preload)
    const other = profile.preload.find((module) => !approved.includes(module))
    if (other !== undefined) {
      const problem = `contains ${other}, which no profile of the configuration preloads; only these modules are allowed`
      throw new Refusal('invalid_argument', { field: 'preload', problem })
    }
    return this.#vault.seal(placeOfProfile(orgId, name), JSON.stringify(written))
  }

  /** Returns everything that is wrong with the settings of a profile; empty if nothing is or only as a whole. */
  problemsOf(name: string, written: Readonly<Record<string, unknown>>): readonly SettingProblem[] {
    try {
      this.#read(name, written)
      return []
    } catch (error) {
      if (error instanceof ProfileRefused) return error.problems
      if (error instanceof StartRefused) return []
      throw error
    }
  }

  /** Returns the same profiles, read from other rows: those of a transaction. */
  within(store: AdminStore): Profiles {
    return new Profiles(store, this.#vault, this.configured, this.#read)
  }

  /** Creates a profile from its row. Writes the row of its revision first, since rows of runs refer to it. */
  async #load(row: StoredProfileRow): Promise<Profile> {
    const profile = this.#readRefusing(row.name, this.settingsOf(row))
    await this.#store.profiles.ensure(toProfileRow(profile))
    return profile
  }

  #readRefusing(name: string, written: Readonly<Record<string, unknown>>): Profile {
    try {
      return this.#read(name, written)
    } catch (error) {
      if (!(error instanceof StartRefused)) throw error
      throw new Refusal('invalid_argument', { field: 'settings', problem: `are invalid: ${error.message}` })
    }
  }
}

/** Creates the row of a profile. Values of variables may be secrets, so it contains only their names. */
export function toProfileRow(profile: Profile) {
  const definition = JSON.stringify({ ...profile, env: Object.keys(profile.env) })
  return { name: profile.name, revision: profile.revision, definition, createdAt: timestamp() }
}
