import type { TSchema } from 'typebox'
import type { RefusalCode } from '../../base/errors.ts'
import { AuditRecord, Erased, SubjectBody, Verdict, VerifyBody } from '../admin/audit.ts'
import { HistoryBody, WebhookSecret } from '../admin/history.ts'
import { KeyBody, RotateBody } from '../admin/keys.ts'
import { LimitsBody } from '../admin/limits.ts'
import { OrgBody } from '../admin/orgs.ts'
import { NewProfileBody, ProfileBody } from '../admin/profiles.ts'
import { TokenBody } from '../admin/tokens.ts'
import { ToolBody } from '../admin/tools.ts'
import { InspectedVolume, NewVolumeBody, Volume, VolumeBody } from '../admin/volumes.ts'
import * as answers from './answers.ts'
import type { Operation } from './operation.ts'

export const paged = {
  cursor: 'From an earlier page: what comes after it.',
  limit: 'Most items of a page, 1 to 200; 50 by default.',
}

/** What every act of administration has in common. */
const administration = (
  id: string,
  summary: string,
  answer: Operation['answers'],
  more: { body?: TSchema; query?: Readonly<Record<string, string>>; refusals?: readonly RefusalCode[] } = {},
): Operation => ({
  id,
  summary,
  by: 'admin token',
  group: 'Administration',
  answers: answer,
  ...(more.body && { body: more.body }),
  ...(more.query && { query: more.query }),
  refusals: ['invalid_argument', 'forbidden', 'not_found', ...(more.refusals ?? [])],
})

const auditFilter = {
  org: 'Of this organisation alone, by id.',
  action: 'Such as run or key.create.',
  actor: 'Id of a key or token.',
  subject: 'Of this person or case.',
  from: 'A day or time, ISO 8601.',
  until: 'The first moment that does not count.',
}

const inOrg = '/admin/v1/orgs/{org}'

export const adminOperations: Readonly<Record<string, Operation>> = {
  'GET /admin/v1/orgs': administration('listOrgs', 'List the organisations', { 200: answers.Orgs }, { query: paged }),
  'POST /admin/v1/orgs': administration(
    'createOrg',
    'Make an organisation',
    { 201: answers.Org },
    { body: OrgBody, refusals: ['name_taken'] },
  ),
  [`GET ${inOrg}`]: administration('getOrg', 'Look at an organisation', { 200: answers.Org }),
  [`PATCH ${inOrg}`]: administration(
    'renameOrg',
    'Rename an organisation',
    { 200: answers.Org },
    { body: OrgBody, refusals: ['name_taken'] },
  ),
  [`GET ${inOrg}/keys`]: administration(
    'listKeys',
    'List keys, without secrets',
    { 200: answers.Keys },
    { query: paged },
  ),
  [`POST ${inOrg}/keys`]: administration('createKey', 'Make a key', { 201: answers.KeyWithSecret }, { body: KeyBody }),
  [`GET ${inOrg}/keys/{key}`]: administration('getKey', 'Look at a key', { 200: answers.Key }),
  [`PATCH ${inOrg}/keys/{key}`]: administration(
    'updateKey',
    'Change what is named of a key',
    { 200: answers.Key },
    { body: KeyBody, refusals: ['key_revoked'] },
  ),
  [`DELETE ${inOrg}/keys/{key}`]: administration('revokeKey', 'Revoke a key for good', { 204: null }),
  [`POST ${inOrg}/keys/{key}/rotate`]: administration(
    'rotateKey',
    'Give a key another secret',
    { 200: answers.KeyWithSecret },
    { body: RotateBody, refusals: ['key_revoked'] },
  ),
  [`GET ${inOrg}/keys/{key}/limits`]: administration('getKeyLimits', 'Look at the limits of a key', {
    200: answers.Limits,
  }),
  [`PUT ${inOrg}/keys/{key}/limits`]: administration(
    'setKeyLimits',
    'Set the limits of a key, all of them',
    { 200: answers.Limits },
    { body: LimitsBody },
  ),
  [`GET ${inOrg}/profiles`]: administration(
    'listProfiles',
    'List the profiles that an organisation has besides those of the configuration',
    { 200: answers.Profiles },
    { query: paged },
  ),
  [`POST ${inOrg}/profiles`]: administration(
    'createProfile',
    'Make a profile',
    { 201: answers.Profile },
    { body: NewProfileBody, refusals: ['name_taken'] },
  ),
  [`GET ${inOrg}/profiles/{profile}`]: administration('getProfile', 'Look at a profile', { 200: answers.Profile }),
  [`PUT ${inOrg}/profiles/{profile}`]: administration(
    'replaceProfile',
    'Write the settings of a profile anew, all of them',
    { 200: answers.Profile },
    { body: ProfileBody },
  ),
  [`DELETE ${inOrg}/profiles/{profile}`]: administration(
    'removeProfile',
    'Remove a profile that no key is bound to',
    { 204: null },
    { refusals: ['in_use'] },
  ),
  [`GET ${inOrg}/volumes`]: administration(
    'listOrgVolumes',
    'List the volumes of an organisation',
    { 200: answers.listOf(Volume) },
    { query: paged },
  ),
  [`POST ${inOrg}/volumes`]: administration(
    'createVolume',
    'Make a volume',
    { 201: Volume },
    { body: NewVolumeBody, refusals: ['name_taken'] },
  ),
  [`GET ${inOrg}/volumes/{volume}`]: administration('getVolume', 'Look at a volume', { 200: InspectedVolume }),
  [`PATCH ${inOrg}/volumes/{volume}`]: administration(
    'updateVolume',
    'Rename a volume, or let it grow',
    { 200: Volume },
    { body: VolumeBody, refusals: ['name_taken', 'in_use'] },
  ),
  [`DELETE ${inOrg}/volumes/{volume}`]: administration(
    'removeVolume',
    'Remove a volume that no profile mounts',
    { 204: null },
    { refusals: ['in_use'] },
  ),
  [`GET ${inOrg}/history`]: administration('getHistory', 'Tell what is kept of the runs of an organisation', {
    200: HistoryBody,
  }),
  [`PATCH ${inOrg}/history`]: administration(
    'setHistory',
    'Say what is kept of the runs of an organisation',
    { 200: HistoryBody },
    { body: HistoryBody },
  ),
  [`GET ${inOrg}/webhook-secret`]: administration('getWebhookSecret', 'Tell what webhooks are signed with', {
    200: WebhookSecret,
  }),
  [`POST ${inOrg}/webhook-secret/rotate`]: administration(
    'rotateWebhookSecret',
    'Sign webhooks with another secret from now on',
    { 200: WebhookSecret },
  ),
  [`GET ${inOrg}/limits`]: administration('getOrgLimits', 'Look at the limits of an organisation', {
    200: answers.Limits,
  }),
  [`PUT ${inOrg}/limits`]: administration(
    'setOrgLimits',
    'Set the limits of an organisation, all of them',
    { 200: answers.Limits },
    { body: LimitsBody },
  ),
  [`GET ${inOrg}/usage`]: administration(
    'getUsage',
    'Tell what the runs of an organisation used, by day and key',
    { 200: answers.Usage },
    {
      query: {
        from: 'First day, as 2027-01-31; by default 30 days before `until`.',
        until: 'The first day that does not count.',
      },
    },
  ),
  [`GET ${inOrg}/tools`]: administration('listTools', 'List the tools and whether they are shown', {
    200: answers.ToolSwitches,
  }),
  [`PUT ${inOrg}/tools/{tool}`]: administration(
    'switchTool',
    'Show a tool to all keys of an organisation, or hide it from them',
    { 200: answers.ToolSwitch },
    { body: ToolBody },
  ),
  [`POST ${inOrg}/subjects/export`]: administration(
    'exportSubject',
    'Export all that is kept of a person or case, as lines of JSON',
    { 200: { mediaType: 'application/x-ndjson' } },
    { body: SubjectBody },
  ),
  [`POST ${inOrg}/subjects/erase`]: administration(
    'eraseSubject',
    'Erase all that is kept of a person or case, for good',
    { 200: Erased },
    { body: SubjectBody, refusals: ['subject_active', 'unavailable'] },
  ),
  'GET /admin/v1/audit': administration(
    'listAudit',
    'List the audit, the newest line first',
    { 200: answers.listOf(AuditRecord) },
    { query: { ...auditFilter, ...paged } },
  ),
  'GET /admin/v1/audit/export': administration(
    'exportAudit',
    'Export the audit as lines of JSON, oldest first',
    { 200: { mediaType: 'application/x-ndjson' } },
    { query: auditFilter },
  ),
  'POST /admin/v1/audit/verify': administration(
    'verifyAudit',
    'Prove that no line of the audit was changed, added or taken away',
    { 200: Verdict },
    { body: VerifyBody },
  ),
  'GET /admin/v1/tokens': administration(
    'listTokens',
    'List admin tokens, without secrets',
    { 200: answers.Tokens },
    { query: paged },
  ),
  'POST /admin/v1/tokens': administration(
    'createToken',
    'Make an admin token',
    { 201: answers.TokenWithSecret },
    { body: TokenBody },
  ),
  'DELETE /admin/v1/tokens/{token}': administration('revokeToken', 'Refuse an admin token from now on', { 204: null }),
}
