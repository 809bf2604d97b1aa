import type { FastifyRequest } from 'fastify'
import { Refusal } from '../../base/errors.ts'
import { type PageRequest, toPageRequest } from '../../core/paging.ts'

/** Which part of a list a query asks for; it may say nothing else. @throws Refusal invalid_argument. */
export function pageAsked(request: FastifyRequest): PageRequest {
  const given: Record<string, string> = {}
  for (const [name, value] of Object.entries(request.query as Record<string, unknown>)) {
    if (name !== 'cursor' && name !== 'limit') {
      const problem = 'is not a parameter; known are cursor, limit'
      throw new Refusal('invalid_argument', { field: name.slice(0, 64), problem })
    }
    if (typeof value !== 'string') throw new Refusal('invalid_argument', { field: name, problem: 'must be given once' })
    given[name] = value
  }
  return toPageRequest(given)
}
