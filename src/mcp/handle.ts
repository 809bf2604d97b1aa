import { Refusal } from '../base/errors.ts'
import { parseJson } from '../base/json.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import { fault, type Log } from '../observe/log.ts'
import type { Offer } from '../tools/catalog.ts'
import type { Calls } from './calls.ts'
import type { Changes } from './changes.ts'
import { classify } from './era.ts'
import { errorText } from './json-rpc.ts'
import { answerLegacy } from './legacy/answer.ts'
import type { Sessions } from './legacy/sessions.ts'
import { answerModern } from './modern/answer.ts'
import type { LiveTasks } from './modern/live-tasks.ts'

/** A header of the HTTP request, by its name in lower case. */
export type HeaderOf = (name: string) => string | undefined

/** What the protocol keeps between requests, for as long as this process lives. */
export interface McpState {
  calls: Calls
  sessions: Sessions
  tasks: LiveTasks
  changes: Changes
  /** Aborts when this process is about to end: what only waits for news ends then. */
  closing: AbortSignal
}

export interface McpContext extends McpState {
  core: Core
  caller: Caller
  /** What the caller's profile offers, within the toolsets asked for. */
  offer: Offer
  serverVersion: string
  /** Where the client reaches this server, without a slash at its end. */
  baseUrl: string
  /** Longest a client that reads events waits for the head of its answer; the stream then keeps it alive. */
  quietMs: number
  /** The client asked for a session, which only what asks the client back needs. */
  wantsSession: boolean
  /** Aborts when the client has closed the connection before its answer was complete. */
  gone(): AbortSignal
  log: Log
}

/** What HTTP answers; bodies and messages are JSON texts. */
export type McpReply =
  | { kind: 'empty'; status: 202 | 204 }
  | { kind: 'json'; status: number; body: string; retryAfterSeconds?: number; sessionId?: string }
  /** Server-sent events; whether ending the iteration early cancels anything is the era's to say, by `gone`. */
  | { kind: 'stream'; messages: AsyncGenerator<string, void, undefined> }

/** Answers one POST. Knows nothing of HTTP but headers and a status; never rejects. */
export async function handle(header: HeaderOf, body: Buffer, context: McpContext): Promise<McpReply> {
  try {
    const message = parseJson(body)
    const era = classify(header('mcp-protocol-version'), message)
    return era.kind === 'modern'
      ? await answerModern(message, header, context)
      : await answerLegacy(era, message, header, context)
  } catch (error) {
    return refuse(error, context.log)
  }
}

/** An error of a body that no era could be asked about. */
export function refuse(error: unknown, log: Log): McpReply {
  const refusal = error instanceof Refusal ? error : new Refusal('fault', { faultId: fault(error, log) })
  const { http, rpc } = refusal.row
  return { kind: 'json', status: http, body: errorText(null, rpc, `${refusal.message} ${refusal.hint}`, undefined) }
}
