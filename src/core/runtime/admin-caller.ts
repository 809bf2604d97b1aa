import { adminToolset, type Profile } from '../../base/profile.ts'
import { noVariables } from '../access/key-env.ts'
import { type Admin, requireInstance } from '../admin/admin.ts'
import type { Caller } from '../caller.ts'
import { mayCall, type ToolEffect } from './tool-access.ts'

/**
 * Makes an administrator of the instance a caller of MCP. The caller has the runtime tools that the token may call and
 * no capability, so it can run nothing and read no file.
 * @param profile as `adminProfile` made it.
 * @throws Refusal `forbidden` for an administrator of one organization.
 */
export function adminCaller(profile: Profile, tools: readonly ToolEffect[], admin: Admin): Caller {
  requireInstance(admin, 'member')
  const permitted = tools.filter((tool) => mayCall(admin, tool)).map(({ name }) => name)
  return {
    orgId: 'instance',
    keyId: admin.id,
    profile,
    env: noVariables,
    tools: permitted,
    upstreamPolicy: null,
    admin,
  }
}

/** Returns the profile of administrators, which offers the runtime tools alone. */
export const adminProfile = (profile: Profile): Profile => ({
  ...profile,
  storage: { kind: 'none' },
  volumes: [],
  calls: { ...profile.calls, toolsets: [adminToolset] },
})
