import { timestamp } from '../../base/clock.ts'
import type { Profile } from '../../base/profile.ts'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import { noVariables } from './key-env.ts'
import { keyWithoutSecret } from './keys.ts'

/** The organization of callers without a key. */
export const developerOrg = 'org_dev'

/** Returns the caller of development mode and creates its rows. */
export async function developer(store: Store, profiles: readonly Profile[]): Promise<Caller> {
  const profile = profiles.find(({ name }) => name === 'default')
  if (profile === undefined) throw new Error('no profile is named default')
  const createdAt = timestamp()
  await store.orgs.ensure({ id: developerOrg, name: 'Development', createdAt })
  const named = { orgId: developerOrg, profile: profile.name, name: 'development without a key' }
  await store.keys.ensure(keyWithoutSecret('key_dev', named))
  return { orgId: developerOrg, keyId: 'key_dev', profile, env: noVariables, tools: null, upstreamPolicy: null }
}
