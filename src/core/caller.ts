import type { Profile } from '../base/profile.ts'
import type { Admin } from './admin/admin.ts'
import type { UpstreamPolicy } from './upstreams/policy.ts'

/** The authenticated caller: created from a key (in development mode, without one) and passed to every operation. */
export interface Caller {
  orgId: string
  keyId: string
  profile: Profile
  /** Variables of the key. They override those of the profile, and those of a call override them. */
  env: Readonly<Record<string, string>>
  /** Names of the tools that the key may use; `null` for all tools of its profile. */
  tools: readonly string[] | null
  /** Limits of the key at upstreams; `null` for no further limits. */
  upstreamPolicy: UpstreamPolicy | null
  /** Namespaces whose sandboxes the key may use; absent: all of its organization. */
  namespaces?: readonly string[]
  /** Set if it authenticated with an admin token instead of a key; it can then use runtime tools, and nothing else. */
  admin?: Admin
}
