import type { Profile } from '../base/profile.ts'

/** Who asks: made at the door from a key (or, in dev mode, from none), passed to every verb. */
export interface Caller {
  orgId: string
  keyId: string
  profile: Profile
}
