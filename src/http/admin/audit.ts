import Type from 'typebox'
import { exportAudit, listAudit, verifyWholeAudit } from '../../core/admin/audit.ts'
import { eraseSubject, exportSubject } from '../../core/admin/subjects.ts'
import { toPageRequest } from '../../core/paging.ts'
import { adminOperation, type Operation, ok, okPage, type Raw } from '../operation.ts'
import { pageParameters } from '../query.ts'
import { listOf, named } from '../schemas.ts'
import { adminGroup as group, orgPath } from './orgs.ts'

const filterParameters = {
  org: 'Only this organization, by id.',
  action: 'Such as run or key.create.',
  actor: 'Id of a key or token.',
  subject: 'Only this person or case.',
  from: 'A date or time, ISO 8601.',
  until: 'A date or time, ISO 8601; exclusive.',
}

const VerifyBody = named(
  'VerifyAuditRequest',
  Type.Object(
    { anchor: Type.Optional(Type.String({ description: 'SEQ:HASH of an earlier verification, stored elsewhere.' })) },
    { additionalProperties: false },
  ),
)
const SubjectBody = named('SubjectRequest', Type.Object({ subject: Type.String() }, { additionalProperties: false }))

const AuditRecord = named(
  'AuditRecord',
  Type.Object({
    seq: Type.Integer(),
    at: Type.String(),
    org_id: Type.Union([Type.String(), Type.Null()]),
    actor: Type.String(),
    action: Type.String(),
    target: Type.String(),
    details: Type.Unsafe<object>({ type: 'object' }),
    personal: Type.Optional(Type.Unsafe<object>({ type: 'object' })),
    erased: Type.Optional(Type.Literal(true)),
    hash: Type.String(),
  }),
)
const Verdict = named(
  'AuditVerdict',
  Type.Object({
    holds: Type.Boolean(),
    lines: Type.Optional(Type.Integer()),
    erased: Type.Optional(Type.Integer()),
    head: Type.Optional(Type.String()),
    seq: Type.Optional(Type.Integer({ description: 'The first record that was changed.' })),
    problem: Type.Optional(Type.String()),
  }),
)
const Erased = named(
  'ErasedSubject',
  Type.Object({
    runs: Type.Integer(),
    threads: Type.Integer(),
    audit_lines: Type.Integer(),
  }),
)

const jsonLines: Raw = { mediaType: 'application/x-ndjson' }

export const auditOperations: readonly Operation[] = [
  adminOperation({
    id: 'exportSubject',
    method: 'POST',
    path: `${orgPath}/subjects/export`,
    group,
    summary: 'Export all data of a person or case, as lines of JSON',
    body: SubjectBody,
    answers: { 200: jsonLines },
    refusals: [],
    handle: async ({ server: { core }, context, admin, params, body: { subject } }) => ({
      status: 200,
      lines: await exportSubject(context, admin, params.org, { subject, files: core.threadFiles }),
    }),
  }),
  adminOperation({
    id: 'eraseSubject',
    method: 'POST',
    path: `${orgPath}/subjects/erase`,
    group,
    summary: 'Erase all data of a person or case permanently',
    body: SubjectBody,
    answers: { 200: Erased },
    refusals: ['subject_active', 'unavailable'],
    handle: async ({ context, admin, params, body }) =>
      ok(await eraseSubject(context, admin, params.org, body.subject)),
  }),
  adminOperation({
    id: 'listAudit',
    method: 'GET',
    path: '/admin/v1/audit',
    group,
    summary: 'List audit records, newest first',
    query: { ...filterParameters, ...pageParameters },
    answers: { 200: listOf(AuditRecord) },
    refusals: [],
    handle: async ({ context, admin, query }) => okPage(await listAudit(context, admin, query, toPageRequest(query))),
  }),
  adminOperation({
    id: 'exportAudit',
    method: 'GET',
    path: '/admin/v1/audit/export',
    group,
    summary: 'Export audit records as lines of JSON, oldest first',
    query: filterParameters,
    answers: { 200: jsonLines },
    refusals: [],
    handle: async ({ context, admin, query }) => ({ status: 200, lines: await exportAudit(context, admin, query) }),
  }),
  adminOperation({
    id: 'verifyAudit',
    method: 'POST',
    path: '/admin/v1/audit/verify',
    group,
    summary: 'Verify that no audit record was changed, added or removed',
    body: VerifyBody,
    answers: { 200: Verdict },
    refusals: [],
    handle: async ({ context, admin, body }) => ok(await verifyWholeAudit(context, admin, body.anchor)),
  }),
]
