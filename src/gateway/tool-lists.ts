import { pipeline, Readable, Transform } from 'node:stream'
import { createParser } from 'eventsource-parser'
import { parseForeignJson, TooManyValues } from '../base/json.ts'
import { messageEvent } from './events.ts'
import { type RelayRequest, type UpstreamAnswer, within } from './exchange.ts'
import { UpstreamProblem } from './failures.ts'
import { sketchOf } from './message.ts'

/** Maximum size of one message with a list. */
const messageMaxBytes = 8 * 1024 * 1024

/** Returns which of some tools are passed on, as they were received. */
export type FilterTools = (tools: readonly unknown[]) => unknown[]

/** Returns whether the response to a request can contain a list of tools: also a stream that is continued. */
export function canListTools({ method, headers }: RelayRequest, message: unknown): boolean {
  if (method === 'GET') return headers['last-event-id'] !== undefined
  const all: unknown[] = Array.isArray(message) ? message : [message]
  return all.some((one) => sketchOf(one).method === 'tools/list')
}

/**
 * Replaces the tools in the lists of a response. Its messages are serialized again, so that a client reads what was checked.
 * @returns the response. A stream fails with an UpstreamProblem if a message is too large or not JSON.
 * @throws UpstreamProblem if a response that is no stream does, or is incomplete after 30 s.
 */
export async function withToolsOf(answer: UpstreamAnswer, filter: FilterTools): Promise<UpstreamAnswer> {
  if (!String(answer.headers['content-type']).startsWith('text/event-stream')) {
    return { ...answer, body: Readable.from([Buffer.from(await filteredWhole(answer, filter))]) }
  }
  const body = filteredEvents(filter)
  pipeline(answer.body, body, () => {})
  return { ...answer, body }
}

const filteredWhole = (answer: UpstreamAnswer, filter: FilterTools): Promise<string> =>
  within(answer, async () => {
    const pieces: Uint8Array[] = []
    let bytes = 0
    for await (const piece of answer.body as AsyncIterable<Uint8Array>) {
      bytes += piece.length
      if (bytes > messageMaxBytes) throw tooLarge()
      pieces.push(piece)
    }
    return replaced(Buffer.concat(pieces).toString('utf8'), filter)
  })

/** Comments, IDs and times of events are kept. */
function filteredEvents(filter: FilterTools): Transform {
  const decoder = new TextDecoder()
  let bytes = 0
  let out = ''
  const add = (text: string) => {
    bytes = 0
    out += text
  }
  const parser = createParser({
    onEvent: ({ id, event = 'message', data }) => {
      if (id !== undefined) add(`id: ${id}\n`)
      const isMessage = event === 'message' && data !== ''
      add(isMessage ? messageEvent(replaced(data, filter)) : `event: ${event}\n${data.replaceAll(/^/gm, 'data: ')}\n\n`)
    },
    onComment: (comment) => add(`: ${comment}\n\n`),
    onRetry: (ms) => add(`retry: ${ms}\n\n`),
  })
  return new Transform({
    transform(piece: Uint8Array, _encoding, done) {
      bytes += piece.length
      try {
        parser.feed(decoder.decode(piece, { stream: true }))
      } catch (error) {
        done(error as Error)
        return
      }
      const text = out
      out = ''
      done(bytes > messageMaxBytes ? tooLarge() : null, text)
    },
  })
}

const tooLarge = () => new UpstreamProblem(`its list of tools is larger than ${messageMaxBytes} bytes`)

/** BOUNDARY: parses a message, or a batch. @throws UpstreamProblem. */
function replaced(text: string, filter: FilterTools): string {
  try {
    const parsed: unknown = parseForeignJson(text)
    for (const message of Array.isArray(parsed) ? (parsed as unknown[]) : [parsed]) {
      const { result } = (message ?? {}) as { result?: { tools?: unknown } | null }
      if (Array.isArray(result?.tools)) result.tools = filter(result.tools)
    }
    return JSON.stringify(parsed)
  } catch (error) {
    if (error instanceof TooManyValues) throw new UpstreamProblem(`its list of tools cannot be read: ${error.message}`)
    if (error instanceof SyntaxError) throw new UpstreamProblem('its list of tools is not JSON')
    if (error instanceof RangeError) throw new UpstreamProblem('its list of tools is nested too deeply')
    throw error
  }
}
