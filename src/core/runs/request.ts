import { Refusal } from '../../base/errors.ts'
import type { Profile } from '../../base/profile.ts'
import { type Language, languages, type RunInput } from '../../base/run.ts'
import type { DeliveryMode } from '../../store/run-history.ts'
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

/** What a caller asks to run, as it came; `check` decides. */
export interface ExecuteRequest {
  code: string
  language?: string | undefined
  timeoutSeconds?: number | undefined
  threadId?: string | undefined
  metadata?: unknown
  env?: Readonly<Record<string, unknown>> | undefined
  stdin?: string | undefined
  /** Goes on when nobody reads it any more; otherwise it is cancelled then. */
  detached: boolean
  /** What it prints is kept when it has ended, for those who ask later; so it always is with an idempotency key. */
  kept?: boolean
  /** The person or case of the caller's that it is for: what is exported and erased together. */
  subject?: string | undefined
  /** Executes it at most once: a repeat is answered with what the first one did. */
  idempotencyKey?: string | undefined
  /** How its answer reaches the caller; `inline` where it is not said. */
  deliveryMode?: DeliveryMode
  /** Where its ending is told; with `webhook` alone. */
  webhookUrl?: string
}

/** What will be run: every rule holds, every default is filled in. */
export interface CheckedRequest {
  input: RunInput
  language: Language
  timeoutMs: number
  /** The variables of the profile below those of the key, and those below the ones of the call. */
  env: Record<string, string>
  /** Of the call alone. */
  envNames: readonly string[]
  /** As JSON. */
  metadata: string | null
  subject: string | null
  detached: boolean
  kept: boolean
  deliveryMode: DeliveryMode
  webhookUrl: string | undefined
  idempotency: IdempotencyRecord | undefined
  /** The home directory is this thread's. */
  thread: RequestedThread | undefined
}

/**
 * Holds a request against the rules and the caller's profile.
 * @throws Refusal that names the field, what was expected and what came.
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
    throw invalid('stdin', `is ${bytes.length} bytes; at most ${stdinLimitBytes} are accepted`)
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
    throw invalid('metadata', `is ${bytes} bytes as JSON; at most ${metadataLimitBytes} are accepted`)
  }
  return json
}

/** A lone surrogate has no UTF-8 form: what ran would not be what was sent. */
function utf8(field: string, text: string): Uint8Array {
  if (!text.isWellFormed()) throw invalid(field, 'holds a lone surrogate, which is not valid Unicode')
  return Buffer.from(text, 'utf8')
}

const invalid = (field: string, problem: string): Refusal => new Refusal('invalid_argument', { field, problem })
