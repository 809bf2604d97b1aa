import type { AdminTokenRow, StoredProfileRow, UsageRow } from './admin-rows.ts'
import type { AuditLine } from './audit-rows.ts'
import type { ClaimRow, KeyRow, OrgRow, ProfileRow, RunRow, TaskRow, ThreadRow } from './store.ts'

/** A run as columns: JSON is text and a flag is 0 or 1, the same in every database. */
export type StoredRun = Omit<RunRow, 'detached' | 'kept' | 'ending' | 'result' | 'envNames'> & {
  envNames: string | null
  detached: number
  kept: number
  ending: string | null
  result: string | null
}

export interface StoredOutput {
  runId: string
  stdoutHead: Uint8Array
  stdoutOmittedBytes: number
  stdoutTail: Uint8Array
  stderrHead: Uint8Array
  stderrOmittedBytes: number
  stderrTail: Uint8Array
  endedAt: string
}

/** Names in code are camelCase, columns are their snake_case. */
export interface Tables {
  schemaVersion: { id: number; version: number }
  orgs: OrgRow
  keys: KeyRow
  profiles: ProfileRow
  storedProfiles: StoredProfileRow
  adminTokens: AdminTokenRow
  limits: { ownerId: string; amounts: string }
  usage: UsageRow
  threads: ThreadRow
  runs: StoredRun
  runOutputs: StoredOutput
  claims: ClaimRow
  tasks: TaskRow
  hiddenTools: { orgId: string; tool: string }
  audit: AuditLine
  auditHead: { id: number; seq: number; hash: string }
  usedLinks: { id: string; expiresAt: string }
  secrets: { name: string; value: string }
}
