import { parseJson } from '../base/json.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import type { Log } from '../observe/log.ts'
import type { Offer } from '../tools/catalog.ts'
import type { ActiveCalls } from './active-calls.ts'
import type { ChangeFeed } from './change-feed.ts'
import { classify } from './era.ts'
import { type EmptyReply, errorReply, type JsonReply, toRefusal } from './json-rpc/encode.ts'
import { answerLegacy } from './legacy/answer.ts'
import type { Sessions } from './legacy/sessions.ts'
import { answerModern } from './modern/answer.ts'
import type { LiveTasks } from './modern/live-tasks.ts'
import type { ResultOptions } from './result-options.ts'

/** Returns a header of the HTTP request by its lower-case name. */
export type HeaderOf = (name: string) => string | undefined

/** The state that requests of this process share. */
export interface McpState {
  calls: ActiveCalls
  sessions: Sessions
  tasks: LiveTasks
  changes: ChangeFeed
  /** Aborts when this process is about to exit. Streams of notifications then end. */
  closing: AbortSignal
}

export interface McpContext extends McpState {
  core: Core
  caller: Caller
  /** What the caller's profile offers within the requested toolsets. */
  offer: Offer
  serverVersion: string
  /** The address at which the client reaches this server, without a trailing slash. */
  baseUrl: string
  /** A call that takes longer is answered as a stream, which keeps the connection alive, if the client reads events. */
  streamAfterMs: number
  /** How calls of this client are answered. */
  results: ResultOptions
  /** The client requested a session. Only requests of the server to the client need one. */
  wantsSession: boolean
  /** The connection of a client that keeps one; absent where each request stands alone. */
  connectionId?: string
  /** Ends the request when its key may no longer use a tool. @param name as it was sent: not yet checked. */
  requireTool(name: unknown): void
  /** Returns a signal that aborts when the client closes the connection before the response is complete. */
  disconnected(): AbortSignal
  log: Log
}

/** What HTTP sends. Bodies and messages are JSON texts. */
export type McpReply =
  | EmptyReply
  | (JsonReply & { sessionId?: string })
  /** Server-sent events. The era decides through `disconnected` whether a disconnect cancels the work. */
  | { kind: 'stream'; messages: AsyncGenerator<string, void, undefined> }

export type StreamReply = Extract<McpReply, { kind: 'stream' }>

/** Answers one POST. Knows nothing of HTTP except headers and a status. Never rejects. */
export async function handle(header: HeaderOf, body: Buffer, context: McpContext): Promise<McpReply> {
  try {
    const message = parseJson(body)
    const era = classify(header('mcp-protocol-version'), message)
    return era.kind === 'modern'
      ? await answerModern(message, header, context)
      : await answerLegacy(era, message, header, context)
  } catch (error) {
    const refusal = toRefusal(error, context.log)
    return errorReply(null, refusal, refusal.row.http)
  }
}
