import { hash } from 'node:crypto'
import type { RouteHandlerMethod } from 'fastify'
import { sendJson } from '../answer.ts'
import { openApiDocument } from './document.ts'

/** The document, made once. It tells nothing of this server but its version. */
export function openApi(version: string): RouteHandlerMethod {
  const json = JSON.stringify(openApiDocument(version))
  const etag = `"${hash('sha256', json).slice(0, 32)}"`
  return async (request, reply) => {
    reply.header('etag', etag)
    if (request.headers['if-none-match'] === etag) return reply.code(304).send()
    return sendJson(reply, 200, json)
  }
}
