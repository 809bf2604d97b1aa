import type { FastifyReply } from 'fastify'
import type { Refusal } from '../base/errors.ts'
import { Writer } from './writer.ts'

/** Larger bodies are written at the speed of their reader. */
const largeCharacters = 64 * 1024

/** Sends a JSON text. */
export async function sendJson(reply: FastifyReply, status: number, json: string): Promise<void> {
  reply.code(status).header('content-type', 'application/json; charset=utf-8')
  if (json.length <= largeCharacters) {
    await reply.send(json)
    return
  }
  reply.header('content-length', Buffer.byteLength(json))
  const writer = startWriting(reply)
  await writer.write(json)
  writer.end()
}

/** Takes the response over from the framework, its status and headers as they are set by now. */
export function startWriting(reply: FastifyReply): Writer {
  reply.hijack()
  reply.raw.writeHead(reply.statusCode, Object.fromEntries(headersOf(reply)))
  return new Writer(reply.raw)
}

const headersOf = (reply: FastifyReply): [string, string | number | string[]][] =>
  Object.entries(reply.getHeaders()).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]]))

/** The body of every error outside JSON-RPC. That of a missing key has the two fields its clients know, and no third. */
export const errorBody = ({ code, row, message, hint }: Refusal): string =>
  JSON.stringify({ error: row.error, message, ...(code !== 'unauthorized' && { hint }) })

/** Headers that belong to a refusal, on whatever door. */
export function refusalHeaders(reply: FastifyReply, refusal: Refusal): void {
  const { retryAfterSeconds, allowed } = refusal.details
  if (typeof retryAfterSeconds === 'number') reply.header('retry-after', retryAfterSeconds)
  if (refusal.code === 'method_not_allowed') reply.header('allow', String(allowed))
  if (refusal.code === 'unauthorized') reply.header('www-authenticate', 'Bearer')
}
