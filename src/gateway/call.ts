import { createParser } from 'eventsource-parser'
import { Refusal } from '../base/errors.ts'
import { parseForeignJson, TooManyValues } from '../base/json.ts'
import type { RelayReply } from './reply.ts'

/** Maximum number of requests to the client that one response may contain; each is refused by a message of its own. */
const requestsMax = 16
/** Maximum size of one response, in bytes. */
const resultMaxBytes = 8 * 1024 * 1024

/** The parameters of a progress notification. */
export interface UpstreamProgress {
  progress: number
  total?: number
  message?: string
}

/** The outcome of a tool call: its result, or the JSON-RPC error of the upstream. */
export type CallOutcome =
  | { kind: 'result'; result: Record<string, unknown> }
  | { kind: 'error'; code: number; message: string }

interface Message {
  id?: unknown
  method?: string
  params?: Record<string, unknown>
  result?: Record<string, unknown>
  error?: { code?: number; message?: string }
}

/** JSON-RPC ID of every call. It need not be unique, since each call has its own HTTP response. */
export const callId = 1

/**
 * Reads the response to one request, as JSON or as an event stream.
 * @param onProgress called for each progress notification; the next one is read after it resolves.
 * @param onRequest called with the ID of each request that the upstream sends to the client; the next message is read
 *   after it resolves.
 * @returns the outcome of the request.
 * @throws Refusal `upstream_failed` if the response is missing, malformed or too large.
 */
export async function readOutcome(
  upstream: string,
  reply: RelayReply,
  onProgress: (progress: UpstreamProgress) => Promise<void>,
  onRequest: (id: string | number) => Promise<void>,
): Promise<CallOutcome> {
  if (reply.kind === 'body')
    return outcomeOf(upstream, reply.body.length === 0 ? {} : parse(upstream, reply.body.toString()))
  const isStream = reply.headers['content-type'] === 'text/event-stream'
  const messages: Message[] = []
  const parser = createParser({
    onEvent: ({ data, event }) => isMessage(event) && messages.push(parse(upstream, data)),
  })
  const decoder = new TextDecoder()
  let text = ''
  let bytes = 0
  let requests = 0
  for await (const piece of reply.pieces) {
    bytes += piece.length
    if (bytes > resultMaxBytes) throw failed(upstream, `its result is larger than ${resultMaxBytes} bytes`)
    const part = typeof piece === 'string' ? piece : decoder.decode(piece, { stream: true })
    if (!isStream) {
      text += part
      continue
    }
    parser.feed(part)
    for (const message of messages.splice(0)) {
      if (message.method === undefined && message.id === callId) return outcomeOf(upstream, message)
      if (message.method === 'notifications/progress') await onProgress(message.params as unknown as UpstreamProgress)
      else if (typeof message.id === 'string' || typeof message.id === 'number') {
        if (++requests > requestsMax) throw failed(upstream, `it sent more than ${requestsMax} requests to the client`)
        await onRequest(message.id)
      }
    }
  }
  if (!isStream) return outcomeOf(upstream, parse(upstream, text))
  throw failed(upstream, 'its response ended without a result')
}

const isMessage = (event: string | undefined): boolean => event === undefined || event === 'message'

function outcomeOf(upstream: string, { result, error }: Message): CallOutcome {
  if (error) return { kind: 'error', code: error.code ?? 0, message: error.message ?? '' }
  if (typeof result === 'object' && result !== null) return { kind: 'result', result }
  throw failed(upstream, 'its response has no result')
}

function parse(upstream: string, text: string): Message {
  try {
    const message = parseForeignJson(text)
    if (typeof message === 'object' && message !== null) return message
  } catch (error) {
    if (error instanceof TooManyValues) throw failed(upstream, `its response cannot be read: ${error.message}`)
    // Malformed; refused below.
  }
  throw failed(upstream, 'its response is not JSON-RPC')
}

const failed = (upstream: string, problem: string): Refusal => new Refusal('upstream_failed', { upstream, problem })
