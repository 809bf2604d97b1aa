import type { Readable } from 'node:stream'
import type { Caller } from '../core/caller.ts'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'
import { asEvent, discardPartialEvent, EventBoundary, errorEvent } from './events.ts'
import type { RelayRequest, UpstreamAnswer } from './exchange.ts'
import { toRefusal } from './failures.ts'
import type { Sketch } from './message.ts'

/** The outcome of a call. `rejected`: the upstream responded with a status below 500; `neutral`: unknown. */
export type Outcome = 'succeeded' | 'rejected' | 'failed' | 'neutral'

/** One message that is being relayed. */
export interface Call {
  caller: Caller
  /** With the access token, where the upstream requires a login. */
  target: UpstreamTarget
  request: RelayRequest
  /** The parsed body; `undefined` if it is empty or not JSON. */
  message: unknown
  sketch: Sketch
  /** Whether the client has got the beginning of its response already. */
  isDeferred?: boolean
  /** ID of its session, if the client has got it already. */
  sessionId?: string
  /** Adds bytes of the response to the usage. */
  count(bytes: number): void
  /** Causes the tools of the upstream to be read again. */
  announceChange(): void
  /** Records the outcome and the usage. Only the first call has an effect. */
  end(outcome: Outcome): void
}

/** The response to the client. */
export type RelayReply =
  | { kind: 'body'; status: number; headers: Record<string, string>; body: Uint8Array }
  | {
      kind: 'stream'
      headers: Record<string, string>
      pieces: AsyncGenerator<string | Uint8Array, void, undefined>
      /** Returns whether the stream is between two events, so that a comment can be added. */
      isBetween(): boolean
      /** Ends a response whose pieces are not read. */
      discard(): void
    }

/** Returns the reply that passes on the body of a response. @param headers of the reply, without the content type. */
export function streamed(
  call: Call,
  { headers: received, body }: UpstreamAnswer,
  headers: Record<string, string>,
): RelayReply {
  const type = received['content-type'] ?? ''
  const boundary = new EventBoundary()
  const discard = () => {
    call.end('neutral')
    body.on('error', () => {}).destroy()
  }
  if (type.startsWith('text/event-stream')) {
    headers['content-type'] = 'text/event-stream'
    const pieces = events(call, body, boundary)
    return { kind: 'stream', headers, pieces, isBetween: () => boundary.isBetween, discard }
  }
  const wantsJson = /\bapplication\/json\b/i.test(call.request.headers.accept ?? '')
  headers['content-type'] = wantsJson ? 'application/json; charset=utf-8' : 'text/event-stream'
  const pieces = plain(call, wantsJson ? body : asEvent(body))
  return { kind: 'stream', headers, pieces, isBetween: () => false, discard }
}

/** Part of each notification that a list has changed. One that is cut at this place goes unnoticed. */
const listChanged = '/list_changed"'

/** Yields an event stream as it arrives. If the upstream interrupts it, yields an error as the response to the request. */
async function* events(
  call: Call,
  body: Readable,
  boundary: EventBoundary,
): AsyncGenerator<string | Uint8Array, void, undefined> {
  let outcome: Outcome = 'succeeded'
  try {
    for await (const piece of body as AsyncIterable<Uint8Array>) {
      call.count(piece.length)
      boundary.add(piece)
      if (Buffer.from(piece.buffer, piece.byteOffset, piece.length).includes(listChanged)) call.announceChange()
      yield piece
    }
  } catch (error) {
    outcome = 'neutral'
    if (call.request.signal.aborted) return
    outcome = 'failed'
    const { message } = toRefusal(error, call.target)
    if (!boundary.isBetween) yield discardPartialEvent
    yield errorEvent(call.sketch.id, -32603, message)
  } finally {
    // Also reached when the reader has found its result and stops.
    call.end(outcome)
    body.destroy()
  }
}

/** Yields a body as it arrives. @throws Refusal if the upstream interrupts it, which closes the connection to the client. */
async function* plain(
  call: Call,
  body: AsyncIterable<string | Uint8Array>,
): AsyncGenerator<string | Uint8Array, void, undefined> {
  let outcome: Outcome = 'succeeded'
  try {
    for await (const piece of body) {
      call.count(piece.length)
      yield piece
    }
  } catch (error) {
    outcome = call.request.signal.aborted ? 'neutral' : 'failed'
    throw toRefusal(error, call.target)
  } finally {
    call.end(outcome)
  }
}
