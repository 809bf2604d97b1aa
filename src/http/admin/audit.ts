import Type from 'typebox'
import type { Administered } from '../../core/admin/admin.ts'
import { exportAudit, listAudit, verifyWholeAudit } from '../../core/admin/audit.ts'
import { eraseSubject, exportSubject } from '../../core/admin/subjects.ts'
import type { Core } from '../../core/core.ts'
import { pageWords } from '../query.ts'
import { administer, pageOf, toList } from './answer.ts'

const filterWords = ['org', 'action', 'actor', 'subject', 'until', 'from'] as const

export const VerifyBody = Type.Object(
  { anchor: Type.Optional(Type.String({ description: 'SEQ:HASH of an earlier verification, kept elsewhere.' })) },
  { additionalProperties: false },
)
export const SubjectBody = Type.Object({ subject: Type.String() }, { additionalProperties: false })

export const AuditRecord = Type.Object({
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
})
export const Verdict = Type.Object({
  holds: Type.Boolean(),
  lines: Type.Optional(Type.Integer()),
  erased: Type.Optional(Type.Integer()),
  head: Type.Optional(Type.String()),
  seq: Type.Optional(Type.Integer({ description: 'The first line that is not what it was.' })),
  problem: Type.Optional(Type.String()),
})
export const Erased = Type.Object({
  runs: Type.Integer(),
  threads: Type.Integer(),
  audit_lines: Type.Integer(),
})

export const auditLines = (on: Administered) => ({
  GET: administer(on, { query: [...filterWords, ...pageWords] }, async ({ admin, query }) => ({
    status: 200,
    body: toList(await listAudit(on, admin, query, pageOf(query))),
  })),
})

export const auditExport = (on: Administered) => ({
  GET: administer(on, { query: filterWords }, async ({ admin, query }) => ({
    status: 200,
    lines: await exportAudit(on, admin, query),
  })),
})

export const auditVerification = (on: Administered) => ({
  POST: administer(on, { body: VerifyBody }, async ({ admin, body }) => ({
    status: 200,
    body: await verifyWholeAudit(on, admin, body.anchor),
  })),
})

export const subjectExport = (on: Administered, { threadFiles }: Pick<Core, 'threadFiles'>) => ({
  POST: administer(on, { body: SubjectBody }, async ({ admin, path, body: { subject } }) => ({
    status: 200,
    lines: await exportSubject(on, admin, path.org!, { subject, files: threadFiles }),
  })),
})

export const subjectErasure = (on: Administered) => ({
  POST: administer(on, { body: SubjectBody }, async ({ admin, path, body }) => ({
    status: 200,
    body: await eraseSubject(on, admin, path.org!, body.subject),
  })),
})
