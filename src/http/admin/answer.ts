import type { FastifyReply, RouteHandlerMethod } from 'fastify'
import type { Static, TObject } from 'typebox'
import { parseJson } from '../../base/json.ts'
import { compile } from '../../base/schema-check.ts'
import type { Admin, Administered } from '../../core/admin/admin.ts'
import { type Page, toPageRequest } from '../../core/paging.ts'
import { sendJson, startWriting } from '../answer.ts'
import { readQuery } from '../query.ts'

/** What a handler of administration is given. */
export interface Asked<Body> {
  on: Administered
  admin: Admin
  /** Words of the path, by name. */
  path: Readonly<Record<string, string>>
  query: Readonly<Record<string, string>>
  body: Body
}

export interface Answered {
  status: 200 | 201 | 204
  body?: unknown
  /** In place of a body: one JSON text a line, as they come. */
  lines?: AsyncGenerator<object, void, undefined>
}

/**
 * A handler whose body is checked against its schema, and whose query has no other words than these.
 * @param work what it does; its role is required in core.
 */
export function administer<Schema extends TObject>(
  on: Administered,
  { body: schema, query: words = [] }: { body?: Schema; query?: readonly string[] },
  work: (asked: Asked<Static<Schema>>) => Promise<Answered>,
): RouteHandlerMethod {
  const check = schema && compile(schema)
  return async (request, reply) => {
    const query = readQuery(request.query, words)
    // Nothing at all says as much as an empty object.
    const sent = request.body as Buffer | undefined
    const body = check ? check(sent?.length ? parseJson(sent) : {}) : (undefined as never)
    const path = request.params as Record<string, string>
    const answered = await work({ on, admin: request.admin, path, query, body })
    return answered.lines ? sendLines(reply, answered.lines) : send(reply, answered.status, answered.body)
  }
}

async function send(reply: FastifyReply, status: number, body: unknown): Promise<void> {
  if (status !== 204) return sendJson(reply, status, JSON.stringify(body))
  await reply.code(status).send()
}

/** A fault on the way ends the connection, so that nobody takes a part for the whole. */
async function sendLines(reply: FastifyReply, lines: AsyncGenerator<object, void, undefined>): Promise<void> {
  // What is refused before the first line is answered as any other.
  const first = await lines.next()
  reply.code(200).header('content-type', 'application/x-ndjson')
  const writer = startWriting(reply)
  try {
    for (let next = first; !next.done && !writer.gone; next = await lines.next()) {
      await writer.write(`${JSON.stringify(next.value)}\n`)
    }
    writer.end()
  } catch (error) {
    reply.raw.destroy()
    throw error
  } finally {
    await lines.return()
  }
}

export const pageOf = toPageRequest

export const toList = <Item>({ items, nextCursor }: Page<Item>) => ({ data: items, next_cursor: nextCursor })
