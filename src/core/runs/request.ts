import { Refusal } from '../../base/errors.ts'
import type { DeliveryMode } from '../../base/execution-status.ts'
import type { Profile } from '../../base/profile.ts'
import { type Language, languages, type RunInput } from '../../base/run.ts'
import { checkVariables } from '../access/variables.ts'
import { checkSubject } from '../audit/subjects.ts'
import type { Caller } from '../caller.ts'
import { checkThreadId } from '../storage/files.ts'
import type { RequestedThread } from '../storage/thread-locks.ts'
import { type IdempotencyRecord, toIdempotencyRecord } from './idempotency.ts'

export const codeLimitBytes = 1024 * 1024
export const stdinLimitBytes = 2 * 1024 * 1024
const metadataLimitBytes = 16 * 1024
export const timeoutLimitSeconds = 3600

/** A request to run code, as the client sent it. `check` validates it. */
export interface ExecuteRequest {
  code: string
  language?: string | undefined
  timeoutSeconds?: number | undefined
  threadId?: string | undefined
  metadata?: unknown
  env?: Readonly<Record<string, unknown>> | undefined
  stdin?: string | undefined
  /** Whether the run continues when its client disconnects. Otherwise it is cancelled. */
  detached: boolean
  /** Whether the output is stored when the run has ended, for later requests. Always true with an idempotency key. */
  kept?: boolean
  /** Output that is larger is stored as if `kept` were set, since the caller receives only a part of it. */
  keptBeyondBytes?: number
  /** Output with images is stored as if `kept` were set, since the caller receives links to them. */
  keptWithImages?: boolean
  /** The person or case that the run belongs to. Data of one subject is exported and erased together. */
  subject?: string | undefined
  /** Executes the code at most once: a retry with the same key returns the result of the first request. */
  idempotencyKey?: string | undefined
  /** How the result is delivered; `inline` by default. */
  deliveryMode?: DeliveryMode
  /** Address that receives the ending; only with the delivery mode `webhook`. */
  webhookUrl?: string
}

/** A validated request with all defaults filled in. */
export interface CheckedRequest {
  input: RunInput
  language: Language
  timeoutMs: number
  /** Variables of the profile, overridden by those of the key, overridden by those of the call. */
  env: Record<string, string>
  /** Names of the variables that the call sets. */
  envNames: readonly string[]
  /** Metadata of the caller, as JSON; `null` for none. */
  metadata: string | null
  subject: string | null
  detached: boolean
  kept: boolean
  keptBeyondBytes: number
  keptWithImages: boolean
  deliveryMode: DeliveryMode
  webhookUrl: string | undefined
  idempotency: IdempotencyRecord | undefined
  /** The thread that contains the home directory. */
  thread: RequestedThread | undefined
}

/**
 * Validates a request against the general limits and the profile of the caller.
 * @throws Refusal `invalid_argument` and others, with the field, the accepted values and the actual value.
 */
export function check({ profile, env }: Pick<Caller, 'profile' | 'env'>, request: ExecuteRequest): CheckedRequest {
  return {
    input: { code: checkCode(request.code), stdin: checkStdin(request.stdin) },
    language: checkLanguage(profile, request.language),
    timeoutMs: checkTimeout(profile, request.timeoutSeconds),
    env: { ...profile.env, ...env, ...checkVariables(request.env ?? {}) },
    metadata: checkMetadata(request.metadata),
    thread: checkThread(profile, request.threadId),
    envNames: Object.keys(request.env ?? {}),
    subject: checkSubject('subject', request.subject),
    detached: request.detached,
    kept: request.kept === true || request.idempotencyKey !== undefined,
    keptBeyondBytes: request.keptBeyondBytes ?? Number.POSITIVE_INFINITY,
    keptWithImages: request.keptWithImages === true,
    deliveryMode: request.deliveryMode ?? 'inline',
    webhookUrl: request.webhookUrl,
    idempotency: toIdempotencyRecord(request),
  }
}

function checkThread({ name, storage }: Profile, id: string | undefined): RequestedThread | undefined {
  if (id === undefined) return undefined
  if (storage.kind === 'none') throw new Refusal('threads_unavailable')
  checkThreadId('thread_id', id)
  return { id, quota: storage.quota, profile: name }
}

function checkCode(code: string): Uint8Array {
  if (code.length === 0) throw new Refusal('code_empty', { limitBytes: codeLimitBytes })
  const bytes = utf8('code', code)
  if (bytes.length > codeLimitBytes) {
    throw new Refusal('code_too_large', { bytes: bytes.length, limitBytes: codeLimitBytes })
  }
  return bytes
}

function checkStdin(stdin: string | undefined): Uint8Array | undefined {
  if (stdin === undefined) return undefined
  const bytes = utf8('stdin', stdin)
  if (bytes.length > stdinLimitBytes) {
    throw invalid('stdin', `is ${bytes.length} bytes; the maximum is ${stdinLimitBytes}`)
  }
  return bytes
}

function checkLanguage(profile: Profile, asked: string | undefined): Language {
  if (asked === undefined) return profile.defaultLanguage
  const language = languages.find((known) => known === asked)
  if (language === undefined || !profile.languages.includes(language)) {
    throw new Refusal('language_unavailable', { language: asked.slice(0, 64), offered: profile.languages })
  }
  return language
}

function checkTimeout(profile: Profile, seconds: number | undefined): number {
  if (seconds === undefined) return Math.min(profile.timeoutDefaultMs, profile.timeoutMaxMs)
  if (!Number.isInteger(seconds) || seconds < 1) {
    throw invalid('timeout', `must be whole seconds from 1 to ${timeoutLimitSeconds}; it is ${seconds}`)
  }
  const limitSeconds = Math.min(timeoutLimitSeconds, Math.floor(profile.timeoutMaxMs / 1000))
  if (seconds > limitSeconds) throw new Refusal('timeout_too_long', { seconds, limitSeconds })
  return seconds * 1000
}

function checkMetadata(metadata: unknown): string | null {
  if (metadata === undefined) return null
  if (typeof metadata !== 'object' || metadata === null || Array.isArray(metadata)) {
    throw invalid('metadata', 'must be an object')
  }
  const json = JSON.stringify(metadata)
  const bytes = Buffer.byteLength(json)
  if (bytes > metadataLimitBytes) {
    throw invalid('metadata', `is ${bytes} bytes as JSON; the maximum is ${metadataLimitBytes}`)
  }
  return json
}

/** Rejects lone surrogates: they cannot be encoded as UTF-8, so the code that runs would differ from the request. */
function utf8(field: string, text: string): Uint8Array {
  if (!text.isWellFormed()) throw invalid(field, 'holds a lone surrogate, which is not valid Unicode')
  return Buffer.from(text, 'utf8')
}

const invalid = (field: string, problem: string): Refusal => new Refusal('invalid_argument', { field, problem })
