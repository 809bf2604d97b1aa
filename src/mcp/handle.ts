import { Refusal } from '../base/errors.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import { fault, type Log } from '../observe/log.ts'
import type { Offer } from '../tools/catalog.ts'
import type { Calls } from './calls.ts'
import { classify, type Era, legacyVersions } from './era.ts'
import { parseJson } from './json.ts'
import { errorText, isObject, own, type RequestId } from './json-rpc.ts'
import { answerLegacy } from './legacy/answer.ts'

/** The headers of an HTTP request that mean something here. */
export interface McpHeaders {
  protocolVersion: string | undefined
  accept: string | undefined
}

export interface McpContext {
  core: Core
  caller: Caller
  /** The tools of the caller's profile, within the toolsets asked for. */
  offer: Offer
  calls: Calls
  serverVersion: string
  /** Longest a client that reads events waits for the head of its answer; the stream then keeps it alive. */
  quietMs: number
  log: Log
}

/** What HTTP answers; bodies and messages are JSON texts. */
export type McpReply =
  | { kind: 'empty'; status: 202 }
  | { kind: 'json'; status: number; body: string; retryAfterSeconds?: number }
  /** Server-sent events; ending the iteration early means the client is gone, which cancels nothing. */
  | { kind: 'stream'; messages: AsyncGenerator<string, void, undefined> }

/** Answers one POST. Knows nothing of HTTP but two headers and a status; never rejects. */
export async function handle(headers: McpHeaders, body: Buffer, context: McpContext): Promise<McpReply> {
  try {
    const message = parseJson(body)
    const era = classify(headers.protocolVersion, message)
    return era.kind === 'modern'
      ? refuseModern(era, message)
      : await answerLegacy(era.version, headers, message, context)
  } catch (error) {
    const refusal = error instanceof Refusal ? error : new Refusal('fault', { faultId: fault(error, context.log) })
    const { http, rpc } = refusal.row
    return { kind: 'json', status: http, body: errorText(null, rpc, `${refusal.message} ${refusal.hint}`, undefined) }
  }
}

/** Shape of the error: https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning */
function refuseModern({ requested }: Extract<Era, { kind: 'modern' }>, message: unknown): McpReply {
  const id = isObject(message) ? own(message, 'id') : null
  const supported = [...legacyVersions].reverse()
  const refusal = new Refusal('era_unsupported', { requested, supported })
  const readableId: RequestId | null = typeof id === 'string' || typeof id === 'number' ? id : null
  const body = errorText(readableId, refusal.row.rpc, refusal.message, { supported, requested })
  return { kind: 'json', status: refusal.row.http, body }
}
