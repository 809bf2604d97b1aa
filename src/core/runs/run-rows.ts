/** Converts a validated request to the message for the runner and to database rows. */
import { createHash } from 'node:crypto'
import { newId } from '../../base/ids.ts'
import type { RunResult, RunSpec, RunVolume } from '../../base/run.ts'
import type { Log } from '../../observe/log.ts'
import type { Metrics } from '../../observe/metrics.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { IdempotencyRow, RunRow, Store } from '../../store/store.ts'
import type { UsageLimiter } from '../access/usage-limiter.ts'
import type { Caller } from '../caller.ts'
import type { Webhooks } from '../jobs/webhooks.ts'
import type { Volumes } from '../storage/volumes.ts'
import { type IdempotencyRecord, idempotencyLifeMs } from './idempotency.ts'
import type { CheckedRequest } from './request.ts'

/** Dependencies of runs. */
export interface RunDeps {
  store: Store
  runner: Runner
  volumes: Volumes
  allowances: UsageLimiter
  webhooks: Webhooks
  metrics: Metrics
  log: Log
}

/** A result, and the time of the ending as it is stored. */
export interface FinishedRun {
  result: RunResult
  /** ISO 8601, UTC. */
  completedAt: string
}

export interface BegunRun {
  spec: RunSpec
  createdAt: string
  /** Whether its output is stored when it has ended. */
  kept: boolean
}

/** A run that has no ending yet. */
export type NewRunRow = Omit<RunRow, 'finishedAt' | 'ending' | 'result'>

export function toIdempotencyRow(
  { id, orgId, keyId, createdAt }: NewRunRow,
  record: IdempotencyRecord,
): IdempotencyRow {
  const expiresAt = new Date(Date.parse(createdAt) + idempotencyLifeMs).toISOString()
  return { orgId, keyId, ...record, runId: id, expiresAt }
}

export function toRunSpec(
  { orgId, keyId, profile }: Caller,
  asked: CheckedRequest,
  volumes: readonly RunVolume[],
): RunSpec {
  return {
    runId: newId('run'),
    orgId,
    keyId,
    profile: profile.name,
    profileRevision: profile.revision,
    reuse: profile.reuse,
    language: asked.language,
    ...(asked.language === 'python' && profile.preload.length > 0 ? { preload: profile.preload } : {}),
    env: asked.env,
    limits: { ...profile.limits, timeoutMs: asked.timeoutMs },
    detached: asked.detached,
    ...(volumes.length > 0 && { volumes }),
  }
}

/** A validated request with the history settings of its organization. */
type RecordedRequest = CheckedRequest & { keepsOutput: boolean }

export function toRow(
  spec: RunSpec,
  { input, metadata, kept, keepsOutput, subject, envNames, thread, deliveryMode }: RecordedRequest,
  owner: { runnerId: string; epoch: number },
  createdAt: string,
): NewRunRow {
  return {
    id: spec.runId,
    orgId: spec.orgId,
    keyId: spec.keyId,
    profile: spec.profile,
    profileRevision: spec.profileRevision,
    language: spec.language,
    codeHash: createHash('sha256').update(input.code).digest('hex'),
    codeBytes: input.code.length,
    metadata,
    subject,
    envNames: JSON.stringify(envNames),
    runnerId: owner.runnerId,
    epoch: owner.epoch,
    detached: spec.detached,
    kept,
    keepsOutput,
    threadId: thread?.id ?? null,
    deliveryMode,
    createdAt,
  }
}
