import { createHash } from 'node:crypto'
import { Refusal } from '../../base/errors.ts'
import type { ExecuteRequest } from './request.ts'

/** Time for which a repeat with the same key returns the result of the first request. */
export const idempotencyLifeMs = 24 * 60 * 60 * 1000
export const idempotencyKeyLimit = 128

/** Identifies a request that is executed at most once. */
export interface IdempotencyRecord {
  idempotencyKey: string
  requestHash: string
}

/** Returns the record of a request; `undefined` without an idempotency key. @throws Refusal `invalid_argument`. */
export function toIdempotencyRecord(request: ExecuteRequest): IdempotencyRecord | undefined {
  const { idempotencyKey } = request
  if (idempotencyKey === undefined) return undefined
  if (idempotencyKey.length > idempotencyKeyLimit || !/^[\x21-\x7e]+$/.test(idempotencyKey)) {
    throw new Refusal('invalid_argument', {
      field: 'idempotency_key',
      problem: `must be 1 to ${idempotencyKeyLimit} printable ASCII characters without spaces`,
    })
  }
  return { idempotencyKey, requestHash: hashOf(request) }
}

/** Hashes the fields that affect the execution, as they were sent. The delivery of the result is not included. */
function hashOf({
  code,
  language,
  timeoutSeconds,
  threadId,
  metadata,
  env,
  stdin,
  subject,
  webhookUrl,
}: ExecuteRequest): string {
  const variables = env && Object.entries(env).sort(([a], [b]) => (a < b ? -1 : 1))
  const asked = [
    code,
    language,
    timeoutSeconds,
    threadId,
    metadata,
    variables,
    stdin,
    subject,
    ...(webhookUrl === undefined ? [] : [webhookUrl]),
  ]
  return createHash('sha256').update(JSON.stringify(asked)).digest('hex')
}
