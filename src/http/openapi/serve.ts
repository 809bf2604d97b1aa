import { hash } from 'node:crypto'
import { sendJson } from '../answer.ts'
import { isUnchanged } from '../conditional.ts'
import { serverGroup } from '../health.ts'
import type { Operation } from '../operation.ts'

/** The OpenAPI document. It reveals nothing about the server except its version. */
export const openApiOperation: Operation = {
  id: 'openapi',
  method: 'GET',
  path: '/openapi.json',
  access: 'open',
  capability: null,
  group: serverGroup,
  summary: 'Get this document',
  answers: { 200: { mediaType: 'application/json' }, 304: null },
  refusals: [],
  handler: ({ openApiJson }) => {
    const etag = `"${hash('sha256', openApiJson).slice(0, 32)}"`
    return async ({ headers }, reply) => {
      reply.header('etag', etag)
      if (isUnchanged(headers, etag)) return reply.code(304).send()
      return sendJson(reply, 200, openApiJson)
    }
  },
}
