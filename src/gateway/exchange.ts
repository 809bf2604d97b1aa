import type { IncomingHttpHeaders } from 'node:http'
import type { Readable } from 'node:stream'
import { Refusal } from '../base/errors.ts'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'
import { UpstreamProblem } from './failures.ts'
import { isRestricted, tryParse } from './message.ts'
import { traceHeaders } from './trace-context.ts'

/** A request of a client to an upstream. */
export interface RelayRequest {
  method: 'POST' | 'GET' | 'DELETE'
  headers: IncomingHttpHeaders
  /** Empty if the request has no body. */
  body: Buffer
  /** Aborts when the client disconnects. */
  signal: AbortSignal
}

/** A response of an upstream whose body was not read yet. */
export interface UpstreamAnswer {
  status: number
  headers: IncomingHttpHeaders
  body: Readable
}

/** Headers of a client that are forwarded. Credentials and cookies are never forwarded. */
const requestHeaders: readonly string[] = [
  ...['mcp-session-id', 'mcp-protocol-version', 'mcp-method', 'mcp-name', 'last-event-id'],
  ...[...traceHeaders, 'accept-language'],
]
/** Headers that repeat arguments of a call (`x-mcp-header`). */
const argumentHeader = /^mcp-param-[a-z0-9-]{1,64}$/
const responseHeaders: readonly string[] = ['mcp-session-id', 'mcp-protocol-version', 'retry-after', 'content-language']

/** Maximum size of a body that is read completely. */
const bodyMaxBytes = 1024 * 1024
/** Time to read it. */
const bodyMaxMs = 30_000

/** Returns the headers of the request to an upstream, without its credentials. */
export function passedOn({ headers, method }: RelayRequest): Record<string, string> {
  const passed: Record<string, string> = {
    accept: method === 'GET' ? 'text/event-stream' : 'application/json, text/event-stream',
    'accept-encoding': 'identity',
    'user-agent': 'glovebox',
    ...(method === 'POST' && { 'content-type': 'application/json' }),
  }
  for (const name of requestHeaders) {
    const value = headers[name]
    if (typeof value === 'string') passed[name] = value
  }
  for (const name in headers) {
    if (name.startsWith('mcp-p') && argumentHeader.test(name)) {
      const value = headers[name]
      if (typeof value === 'string') passed[name] = value
    }
  }
  return passed
}

/**
 * Returns the body of the request to an upstream: the bytes of the client, or the serialized message if it had to be
 * checked or the credential is sent in it.
 * @throws Refusal `invalid_request` if such a body is not JSON.
 */
export function bodyToSend(
  body: Buffer,
  message: unknown,
  target: UpstreamTarget,
  intoBody: ((message: unknown) => void) | undefined,
): Buffer | string {
  if (intoBody === undefined && !isRestricted(target)) return body
  if (message === undefined) throw new Refusal('invalid_request', { problem: 'the body is not JSON' })
  // Serialized again, so that the upstream reads what was checked: of two equal keys, parsers use different ones.
  const copy: unknown = structuredClone(message)
  for (const one of Array.isArray(copy) ? (copy as unknown[]) : [copy]) intoBody?.(one)
  return JSON.stringify(copy)
}

export const sessionHeaders = ({
  id,
  protocolVersion,
}: {
  id: string
  protocolVersion: string
}): Record<string, string> => ({
  'mcp-session-id': id,
  'mcp-protocol-version': protocolVersion,
})

/** Returns the headers of the response that are forwarded to the client. */
export function pick(received: IncomingHttpHeaders): Record<string, string> {
  const picked: Record<string, string> = {}
  for (const name of responseHeaders) {
    const value = received[name]
    if (typeof value === 'string') picked[name] = value
  }
  return picked
}

/** Reads a whole body. @throws UpstreamProblem if it is larger than 1 MiB, or incomplete after 30 s. */
export function bodyOf(answer: UpstreamAnswer): Promise<Buffer> {
  return within(answer, async () => {
    const pieces: Uint8Array[] = []
    let bytes = 0
    for await (const piece of answer.body as AsyncIterable<Uint8Array>) {
      bytes += piece.length
      if (bytes > bodyMaxBytes) throw new UpstreamProblem('its response is too large')
      pieces.push(piece)
    }
    return Buffer.concat(pieces)
  })
}

/** Reads a response that the gateway needs itself, and then closes it. @throws UpstreamProblem after 30 s. */
export async function within<T>({ body }: UpstreamAnswer, read: () => Promise<T>): Promise<T> {
  const timer = setTimeout(() => body.destroy(new UpstreamProblem('it did not complete its response')), bodyMaxMs)
  body.on('error', () => {})
  try {
    return await read()
  } finally {
    clearTimeout(timer)
    body.destroy()
  }
}

/** Closes a response without reading it. @returns an error with the message `problem`. */
export function dropped({ body }: UpstreamAnswer, problem: string): UpstreamProblem {
  body.on('error', () => {})
  body.destroy()
  return new UpstreamProblem(problem)
}

/** Returns whether a text is a JSON-RPC error. */
export function isProtocolError(text: string): boolean {
  const { jsonrpc, error } = (tryParse(Buffer.from(text)) ?? {}) as { jsonrpc?: unknown; error?: unknown }
  return jsonrpc === '2.0' && typeof error === 'object'
}

/** Returns the beginning of a text from an upstream, on one line. */
export const excerpt = (text: string): string =>
  text
    .replaceAll(/[^\x20-\x7e]+/g, ' ')
    .trim()
    .slice(0, 200) || 'without a body'
