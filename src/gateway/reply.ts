import type { Caller } from '../core/caller.ts'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'
import { type BodySink, DirectAnswer } from './direct-answer.ts'
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
      /** Passes the pieces on instead, as they arrive; absent where they are not those of the upstream. */
      direct?: DirectReply
      /** Returns whether the stream is between two events, so that a comment can be added. */
      isBetween(): boolean
      /** Ends a response whose pieces are not read. */
      discard(): void
    }

/** A response that is passed on without a stream in between. */
export interface DirectReply {
  /** Passes on what has arrived, and then the rest. */
  forward(sink: BodySink): void
  /** Continues after the sink had no room. */
  resume(): void
}

/** Returns the reply that passes on the body of a response. @param headers of the reply, without the content type. */
export function streamed(call: Call, answer: UpstreamAnswer, headers: Record<string, string>): RelayReply {
  const type = answer.headers['content-type'] ?? ''
  const boundary = new EventBoundary()
  const discard = () => {
    call.end('neutral')
    close(answer)
  }
  const isStream = type.startsWith('text/event-stream')
  const wantsJson = isStream || /\bapplication\/json\b/i.test(call.request.headers.accept ?? '')
  const direct = answer instanceof DirectAnswer && wantsJson ? directly(call, answer, isStream && boundary) : undefined
  if (isStream) {
    headers['content-type'] = 'text/event-stream'
    const pieces = events(call, answer, boundary)
    return { kind: 'stream', headers, pieces, isBetween: () => boundary.isBetween, discard, ...(direct && { direct }) }
  }
  headers['content-type'] = wantsJson ? 'application/json; charset=utf-8' : 'text/event-stream'
  const pieces = plain(call, answer, wantsJson)
  return { kind: 'stream', headers, pieces, isBetween: () => false, discard, ...(direct && { direct }) }
}

/** Part of each notification that a list has changed. One that is cut at this place goes unnoticed. */
const listChanged = '/list_changed"'

/** Counts a piece of an event stream. */
function note(call: Call, piece: Uint8Array, boundary: EventBoundary): void {
  call.count(piece.length)
  boundary.add(piece)
  if (Buffer.from(piece.buffer, piece.byteOffset, piece.length).includes(listChanged)) call.announceChange()
}

/** Returns the response to a request whose stream the upstream has interrupted. */
function interrupted(call: Call, boundary: EventBoundary, error: unknown): string {
  const { message } = toRefusal(error, call.target)
  return `${boundary.isBetween ? '' : discardPartialEvent}${errorEvent(call.sketch.id, -32603, message)}`
}

/** Does the same as `events` or `plain` without a stream. @param boundary of an event stream; `false` for other bodies. */
function directly(call: Call, answer: DirectAnswer, boundary: EventBoundary | false): DirectReply {
  return {
    resume: () => answer.resume(),
    forward: (sink) =>
      answer.forward({
        take: (bytes, isLast) => {
          if (bytes && boundary) note(call, bytes, boundary)
          else if (bytes) call.count(bytes.length)
          if (isLast) call.end('succeeded')
          return sink.take(bytes, isLast)
        },
        fail: (error) => {
          const isGone = call.request.signal.aborted
          call.end(isGone ? 'neutral' : 'failed')
          try {
            if (isGone) sink.fail(error)
            else if (boundary) sink.take(Buffer.from(interrupted(call, boundary, error)), true)
            else sink.fail(toRefusal(error, call.target))
          } catch (fault) {
            sink.fail(fault)
          }
        },
      }),
  }
}

/** Closes a response whose rest is not needed. */
function close(answer: UpstreamAnswer): void {
  if (answer instanceof DirectAnswer) answer.abort(new Error('the response is not needed'))
  else answer.body.on('error', () => {}).destroy()
}

/** Yields an event stream as it arrives. If the upstream interrupts it, yields an error as the response to the request. */
async function* events(
  call: Call,
  answer: UpstreamAnswer,
  boundary: EventBoundary,
): AsyncGenerator<string | Uint8Array, void, undefined> {
  let outcome: Outcome = 'succeeded'
  try {
    for await (const piece of bodyPieces(answer)) {
      note(call, piece, boundary)
      yield piece
    }
  } catch (error) {
    outcome = 'neutral'
    if (call.request.signal.aborted) return
    outcome = 'failed'
    yield interrupted(call, boundary, error)
  } finally {
    // Also reached when the reader has found its result and stops.
    call.end(outcome)
    close(answer)
  }
}

/** Returns the pieces of a body. One that has arrived already needs no stream. */
const bodyPieces = (answer: UpstreamAnswer): AsyncIterable<Uint8Array> | Iterable<Uint8Array> =>
  (answer instanceof DirectAnswer ? answer.takeWhole() : undefined) ?? answer.body

/** Yields a body as it arrives. @throws Refusal if the upstream interrupts it, which closes the connection to the client. */
async function* plain(
  call: Call,
  answer: UpstreamAnswer,
  wantsJson: boolean,
): AsyncGenerator<string | Uint8Array, void, undefined> {
  let outcome: Outcome = 'succeeded'
  try {
    const body = bodyPieces(answer)
    for await (const piece of wantsJson ? body : asEvent(body)) {
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
