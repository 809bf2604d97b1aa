import type { RouteHandlerMethod } from 'fastify'
import type { Core } from '../../core/core.ts'
import { auditExport, auditLines, auditVerification, subjectErasure, subjectExport } from './audit.ts'
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
  core: Pick<Core, 'administered' | 'threadFiles'>,
  known: readonly string[],
): Record<string, Partial<Record<Method, RouteHandlerMethod>>> {
  const on = core.administered
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
    [`${inOrg}/subjects/export`]: subjectExport(on, core),
    [`${inOrg}/subjects/erase`]: subjectErasure(on),
    '/admin/v1/audit': auditLines(on),
    '/admin/v1/audit/export': auditExport(on),
    '/admin/v1/audit/verify': auditVerification(on),
    '/admin/v1/tokens': tokens(on),
    '/admin/v1/tokens/:token': token(on),
  }
}
