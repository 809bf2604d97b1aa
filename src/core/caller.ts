import type { Profile } from '../base/profile.ts'

/** The authenticated caller: created from a key (in development mode, without one) and passed to every operation. */
export interface Caller {
  orgId: string
  keyId: string
  profile: Profile
  /** Variables of the key. They override those of the profile, and those of a call override them. */
  env: Readonly<Record<string, string>>
  /** Names of the tools that the key may use; `null` for all tools of its profile. */
  tools: readonly string[] | null
}
