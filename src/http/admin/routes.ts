import type { RouteHandlerMethod } from 'fastify'
import type { Administered } from '../../core/admin/admin.ts'
import { historyOf, webhookSecret, webhookSecretRotation } from './history.ts'
import { key, keyRotation, keysOf } from './keys.ts'
import { limits, usage } from './limits.ts'
import { org, orgs } from './orgs.ts'
import { profile, profilesOf } from './profiles.ts'
import { token, tokens } from './tokens.ts'
import { tool, toolsOf } from './tools.ts'
import { volume, volumesOf } from './volumes.ts'

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

/** Every path of administration. @param known names of all tools there are. */
export function adminRoutes(
  on: Administered,
  known: readonly string[],
): Record<string, Partial<Record<Method, RouteHandlerMethod>>> {
  const inOrg = '/admin/v1/orgs/:org'
  return {
    '/admin/v1/orgs': orgs(on),
    [inOrg]: org(on),
    [`${inOrg}/keys`]: keysOf(on, known),
    [`${inOrg}/keys/:key`]: key(on, known),
    [`${inOrg}/keys/:key/rotate`]: keyRotation(on),
    [`${inOrg}/keys/:key/limits`]: limits(on),
    [`${inOrg}/profiles`]: profilesOf(on),
    [`${inOrg}/profiles/:profile`]: profile(on),
    [`${inOrg}/volumes`]: volumesOf(on),
    [`${inOrg}/volumes/:volume`]: volume(on),
    [`${inOrg}/limits`]: limits(on),
    [`${inOrg}/history`]: historyOf(on),
    [`${inOrg}/webhook-secret`]: webhookSecret(on),
    [`${inOrg}/webhook-secret/rotate`]: webhookSecretRotation(on),
    [`${inOrg}/usage`]: usage(on),
    [`${inOrg}/tools`]: toolsOf(on, known),
    [`${inOrg}/tools/:tool`]: tool(on, known),
    '/admin/v1/tokens': tokens(on),
    '/admin/v1/tokens/:token': token(on),
  }
}
