/** Converts a validated request to the message for the runner and to database rows. */
import { createHash } from 'node:crypto'
import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import { defaultImage } from '../../base/image.ts'
import type { RunResult, RunSpec, RunVolume } from '../../base/run.ts'
import type { Log } from '../../observe/log.ts'
import type { Metrics } from '../../observe/metrics.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { IdempotencyRow, RunRow, Store } from '../../store/store.ts'
import type { NetworkSecrets, OpenedNetwork } from '../access/network-secrets.ts'
import type { UsageLimiter } from '../access/usage-limiter.ts'
import type { Caller } from '../caller.ts'
import type { Webhooks } from '../jobs/webhooks.ts'
import type { ThreadLocks } from '../storage/thread-locks.ts'
import type { Volumes } from '../storage/volumes.ts'
import { type IdempotencyRecord, idempotencyLifeMs } from './idempotency.ts'
import type { CheckedRequest } from './request.ts'

/** Dependencies of runs. */
export interface RunDeps {
  store: Store
  runner: Runner
  threads: ThreadLocks
  volumes: Volumes
  secrets: NetworkSecrets
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
  /** Settles when the thread that this run created is durable. Never rejects. */
  durable: Promise<void> | undefined
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
  { network, env: placeholders }: OpenedNetwork,
): RunSpec {
  return {
    runId: newId('run'),
    orgId,
    keyId,
    profile: profile.name,
    profileRevision: profile.revision,
    reuse: profile.reuse,
    language: asked.language,
    ...(profile.image !== defaultImage && { image: profile.image }),
    ...(asked.language === 'python' && profile.preload.length > 0 ? { preload: profile.preload } : {}),
    env: { ...placeholders, ...asked.env },
    limits: { ...profile.limits, timeoutMs: asked.timeoutMs },
    detached: asked.detached,
    ...(volumes.length > 0 && { volumes }),
    ...(network && { network }),
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

/** Checks that the key is valid. Called after the row was written, which every later revocation finds. */
export async function requireLiveKey(store: Store, { keyId }: RunSpec): Promise<void> {
  const key = await store.keys.get(keyId)
  if (key?.revokedAt !== null) throw new Refusal('unauthorized')
}
