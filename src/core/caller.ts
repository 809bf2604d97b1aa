import type { Profile } from '../base/profile.ts'

/** The authenticated caller: created from a key (in development mode, from none) and passed to every verb. */
export interface Caller {
  orgId: string
  keyId: string
  profile: Profile
  /** Variables of the key: over those of the profile, below those of a call. */
  env: Readonly<Record<string, string>>
  /** The tools that the key may use; `null` for all that its profile offers. */
  tools: readonly string[] | null
}
