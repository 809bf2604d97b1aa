import type { FastifyReply } from 'fastify'
import type { Refusal } from '../base/errors.ts'
import { escapeLineBreaks } from '../base/json.ts'
import { Writer } from './writer.ts'

/** Larger bodies are written in pieces, as fast as the client reads them. */
const largeCharacters = 64 * 1024

/** Sends a JSON text. */
export async function sendJson(reply: FastifyReply, status: number, json: string): Promise<void> {
  // Ended from outside, because its key was revoked meanwhile.
  if (reply.sent) return
  reply.code(status).header('content-type', 'application/json; charset=utf-8')
  if (json.length <= largeCharacters) {
    await reply.send(json)
    return
  }
  reply.header('content-length', Buffer.byteLength(json))
  const writer = startWriting(reply)
  reply.request.open?.holdUnread(json.length)
  await writer.write(json)
  writer.end()
}

/**
 * Sends objects as lines of JSON. What is refused before the first line is answered like any other refusal; a later
 * failure closes the connection, so that a partial export cannot be mistaken for a complete one.
 */
export async function sendLines(reply: FastifyReply, lines: AsyncGenerator<object, void, undefined>): Promise<void> {
  const first = await lines.next()
  reply.code(200).header('content-type', 'application/x-ndjson')
  const writer = startWriting(reply)
  try {
    for (let next = first; !next.done && !writer.gone; next = await lines.next()) {
      await writer.write(`${escapeLineBreaks(JSON.stringify(next.value))}\n`)
    }
    writer.end()
  } catch (error) {
    reply.raw.destroy()
    throw error
  } finally {
    await lines.return()
  }
}

/** Takes the response over from Fastify, with the status and headers set so far. @returns a writer for its body. */
export function startWriting(reply: FastifyReply): Writer {
  reply.hijack()
  if (!reply.raw.headersSent) reply.raw.writeHead(reply.statusCode, Object.fromEntries(headersOf(reply)))
  const writer = new Writer(reply.raw)
  // A stream would last until its end, although none of it is sent.
  if (reply.request.method === 'HEAD') writer.end()
  return writer
}

const headersOf = (reply: FastifyReply): [string, string | number | string[]][] =>
  Object.entries(reply.getHeaders()).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]]))

/**
 * The body of every error outside JSON-RPC. `unauthorized` has `error`, which is also its code, and `message` only: its
 * clients know no other fields. What OAuth clients show to people is `error_description`: https://www.rfc-editor.org/rfc/rfc7591#section-3.2.2
 */
export const errorBody = ({ code, row, message, hint, details }: Refusal): string =>
  JSON.stringify({
    error: row.error,
    ...(code !== 'unauthorized' && { code }),
    message,
    ...(code !== 'unauthorized' && { hint, retry: row.retry }),
    ...(code === 'declaration_invalid' && { problems: details.problems }),
    ...(code === 'oauth_unsupported' && { error_description: `${message} ${hint}` }),
  })

/** The error as the last line of a stream. */
export const errorLine = (refusal: Refusal): string =>
  `${escapeLineBreaks(`{"type":"error",${errorBody(refusal).slice(1)}`)}\n`

/** Sets the headers that a refusal requires: Retry-After, Allow, WWW-Authenticate. */
export function refusalHeaders(reply: FastifyReply, refusal: Refusal): void {
  const { retryAfterSeconds, allowed } = refusal.details
  if (typeof retryAfterSeconds === 'number') reply.header('retry-after', retryAfterSeconds)
  if (refusal.code === 'method_not_allowed') reply.header('allow', String(allowed))
  if (refusal.code === 'unauthorized' || refusal.code === 'token_invalid') reply.header('www-authenticate', 'Bearer')
  // Clients of MCP start OAuth where a challenge names Bearer.
  if (refusal.code === 'key_missing' || refusal.code === 'token_missing')
    reply.header('www-authenticate', 'ApiKey realm="glovebox"')
}
