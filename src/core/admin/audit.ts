import { Refusal } from '../../base/errors.ts'
import type { AuditFilter, AuditLine } from '../../store/audit-rows.ts'
import { type AuditRecord, eachLine, toRecord, type Verdict, verifyAudit } from '../audit/audit.ts'
import { type Page, type PageRequest, searchPage } from '../paging.ts'
import { checkTime } from '../times.ts'
import { type Admin, type AdminContext, requireInOrg, requireInstance } from './admin.ts'

/** Filters of the audit log, as the client sent them. */
export interface AuditQuery {
  /** ID of an organization. */
  org?: string | undefined
  action?: string | undefined
  actor?: string | undefined
  subject?: string | undefined
  /** Start of the period, ISO 8601. */
  from?: string | undefined
  until?: string | undefined
}

/**
 * Converts the filters. For an administrator of one organization, only its lines match.
 * @throws Refusal forbidden, not_found, invalid_argument.
 */
async function filterOf({ store }: AdminContext, admin: Admin, query: AuditQuery): Promise<AuditFilter> {
  const { org = admin.orgId ?? undefined, from, until, ...rest } = query
  if (org === undefined) requireInstance(admin, 'member')
  else await requireInOrg(store, admin, 'member', org)
  return { ...rest, orgId: org, until: checkTime('until', until), from: checkTime('from', from) }
}

/** Lists matching lines, newest first. @throws Refusal forbidden, not_found, invalid_argument. */
export async function listAudit(
  on: AdminContext,
  admin: Admin,
  query: AuditQuery,
  asked: PageRequest,
): Promise<Page<AuditRecord>> {
  const filter = await filterOf(on, admin, query)
  const keys = {
    ofRow: ({ seq }: AuditLine): [string] => [String(seq)],
    ofPosition: (seq: number): [string] => [String(seq)],
  }
  const { items, nextCursor } = await searchPage(asked, [''] as [string], keys, ([before], limit) =>
    on.store.audit.newest(filter, before === '' ? Number.MAX_SAFE_INTEGER : Number(before), limit),
  )
  return { items: items.map(toRecord), nextCursor }
}

/** Yields every matching line, oldest first. @throws Refusal forbidden, not_found, invalid_argument. */
export async function exportAudit(
  on: AdminContext,
  admin: Admin,
  query: AuditQuery,
): Promise<AsyncGenerator<AuditRecord, void, undefined>> {
  const filter = await filterOf(on, admin, query)
  return (async function* () {
    for await (const line of eachLine(on.store, filter)) yield toRecord(line)
  })()
}

/**
 * Verifies the whole audit log; see `verifyAudit`.
 * @param anchor `SEQ:HASH`, as an earlier verification returned it.
 * @throws Refusal forbidden, invalid_argument.
 */
export function verifyWholeAudit({ store }: AdminContext, admin: Admin, anchor: string | undefined): Promise<Verdict> {
  requireInstance(admin, 'member')
  if (anchor === undefined) return verifyAudit(store)
  const [, seq, hash] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(anchor) ?? []
  if (seq === undefined || hash === undefined) {
    throw new Refusal('invalid_argument', { field: 'anchor', problem: 'must be SEQ:HASH, as a verification prints it' })
  }
  return verifyAudit(store, { seq: Number(seq), hash })
}
