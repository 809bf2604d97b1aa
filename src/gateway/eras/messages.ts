import { Readable } from 'node:stream'
import { createParser } from 'eventsource-parser'
import { messageEvent } from '../events.ts'
import { bodyOf, type UpstreamAnswer, within } from '../exchange.ts'
import { UpstreamProblem } from '../failures.ts'
import { tryParse } from '../message.ts'

export type Json = Record<string, unknown>

/** A JSON-RPC message, as far as it is translated. */
export interface RpcMessage {
  jsonrpc?: unknown
  id?: unknown
  method?: unknown
  params?: Json
  result?: Json
  error?: { code?: unknown; message?: unknown; data?: unknown }
}

/** Sends a message to the upstream with these headers. `signal` aborts the request; by default that of the client. */
export type SendMessage = (
  message: object,
  headers: Record<string, string>,
  signal?: AbortSignal,
) => Promise<UpstreamAnswer>

/** Maximum size of one message that is translated, in bytes. */
const messageMaxBytes = 8 * 1024 * 1024

export const modernVersion = '2026-07-28'
export const legacyVersion = '2025-11-25'
/** https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning */
export const versionUnsupported = -32022

/** Name of a field of `_meta` that the protocol reserves. */
export const metaKey = (name: string): string => `io.modelcontextprotocol/${name}`

/** The response to a notification. */
export const accepted = (): UpstreamAnswer => ({ status: 202, headers: {}, body: Readable.from([]) })

/** The response to a request that needs no message to the upstream. */
export const respond = (id: unknown, message: Json, headers: Record<string, string> = {}): UpstreamAnswer => ({
  ...{ status: 200, headers: { 'content-type': 'application/json', ...headers } },
  body: Readable.from([Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, ...message }))]),
})

/**
 * Translates the messages of a response.
 * @param convert returns the message for the client; `undefined` if it gets none. Errors interrupt the response.
 * @returns the response as an event stream, except that errors keep their form.
 */
export function translated(
  answer: UpstreamAnswer,
  convert: (message: RpcMessage) => RpcMessage | undefined,
): UpstreamAnswer {
  if (answer.status !== 200) return answer
  answer.body.on('error', () => {})
  return eventStream(convertedIn(answer, convert), () => answer.body.destroy())
}

async function* convertedIn(
  answer: UpstreamAnswer,
  convert: (message: RpcMessage) => RpcMessage | undefined,
): AsyncGenerator<RpcMessage, void, undefined> {
  for await (const message of messagesOf(answer)) {
    const converted = convert(message)
    if (converted !== undefined) yield converted
  }
}

/**
 * Returns a response with these messages as events.
 * @param onEnd called when the last one was read, and when the client disconnects, also while a message is awaited.
 */
export function eventStream(messages: AsyncIterator<RpcMessage>, onEnd: () => void): UpstreamAnswer {
  const body = new Readable({
    read() {
      messages.next().then(
        ({ value, done }) => body.push(done ? null : messageEvent(JSON.stringify(value))),
        (error: Error) => body.destroy(error),
      )
    },
    destroy(error, callback) {
      onEnd()
      callback(error)
    },
  })
  return { status: 200, headers: { 'content-type': 'text/event-stream' }, body }
}

/** Reads the result of a request. @returns `undefined` if the response has none. @throws UpstreamProblem. */
export async function resultOf(answer: UpstreamAnswer, id: unknown): Promise<Json | undefined> {
  if (answer.status !== 200) {
    await bodyOf(answer)
    return undefined
  }
  return within(answer, async () => {
    for await (const message of messagesOf(answer)) {
      if (message.id === id) return typeof message.result === 'object' ? message.result : undefined
    }
    return undefined
  })
}

/** Reads the messages of a response, in one of its two forms. @throws UpstreamProblem if one is too large or malformed. */
export async function* messagesOf({ headers, body }: UpstreamAnswer): AsyncGenerator<RpcMessage, void, undefined> {
  const isStream = String(headers['content-type']).startsWith('text/event-stream')
  const decoder = new TextDecoder()
  const texts: string[] = []
  let bytes = 0
  const parser = createParser({
    onEvent: ({ event = 'message', data }) => {
      bytes = 0
      if (event === 'message' && data !== '') texts.push(data)
    },
    onComment: () => {
      bytes = 0
    },
  })
  let whole = ''
  for await (const piece of body as AsyncIterable<Uint8Array>) {
    bytes += piece.length
    if (bytes > messageMaxBytes + piece.length) throw new UpstreamProblem('it sent a message that is too large')
    const part = decoder.decode(piece, { stream: true })
    if (isStream) parser.feed(part)
    else whole += part
    for (const text of texts.splice(0)) yield* messagesIn(text)
  }
  if (!isStream) yield* messagesIn(whole)
}

/** BOUNDARY: a message, or a batch of them. */
function messagesIn(text: string): RpcMessage[] {
  const parsed = tryParse(Buffer.from(text))
  if (typeof parsed !== 'object' || parsed === null) throw new UpstreamProblem('its response is not JSON-RPC')
  return (Array.isArray(parsed) ? parsed : [parsed]).filter((one) => typeof one === 'object' && one !== null)
}
