import type { ExecutionStatus } from '../base/execution-status.ts'
import type { ImageType } from '../base/run.ts'
import type { AdminTokenRow, StoredProfileRow, UsageRow } from './admin-rows.ts'
import type { AuditLine } from './audit-rows.ts'
import type { DeliveryRow, OrgSettingsRow } from './run-history.ts'
import type { ThreadRow, VolumeRow } from './storage-rows.ts'
import type { IdempotencyRow, KeyRow, OrgRow, ProfileRow, RunRow, TaskRow } from './store.ts'
import type { UpstreamRow, UpstreamUsageRow } from './upstream-rows.ts'

/** A run as it is stored: JSON as text, flags as 0 or 1, in every database. */
export type StoredRun = Omit<RunRow, 'detached' | 'kept' | 'keepsOutput' | 'ending' | 'result' | 'envNames'> & {
  envNames: string | null
  /** Status of the ending, for searches. */
  status: ExecutionStatus
  keepsOutput: number
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
  order: Uint8Array | null
  /** 1 if the output is kept as long as the row of the run. */
  withRun: number
}

export interface StoredImage {
  runId: string
  position: number
  mimeType: ImageType
  bytes: Uint8Array
  endedAt: string
}

/** Names in code are camelCase, columns are their snake_case. The nouns of `nouns.ts` add their tables in their own file. */
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
  volumes: VolumeRow
  upstreams: UpstreamRow
  upstreamUsage: UpstreamUsageRow
  runs: StoredRun
  runOutputs: StoredOutput
  runCodes: { runId: string; code: Uint8Array }
  runMetadata: { runId: string; orgId: string; key: string; value: string; createdAt: string }
  deliveries: DeliveryRow
  orgSettings: OrgSettingsRow
  runImages: StoredImage
  claims: IdempotencyRow
  tasks: TaskRow
  audit: AuditLine
  auditHead: { id: number; seq: number; hash: string }
  secrets: { name: string; value: string }
}
