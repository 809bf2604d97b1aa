import type { Profile } from '../base/profile.ts'

/** Who asks: made at the door from a key (or, in dev mode, from none), passed to every verb. */
export interface Caller {
  orgId: string
  keyId: string
  profile: Profile
  /** Variables of the key: over those of the profile, below those of a call. */
  env: Readonly<Record<string, string>>
  /** The tools that the key may use; `null`: all that its profile offers. */
  tools: readonly string[] | null
}
