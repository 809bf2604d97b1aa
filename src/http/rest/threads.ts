import type { RouteHandlerMethod } from 'fastify'
import Type from 'typebox'
import { parseJson } from '../../base/json.ts'
import { compile } from '../../base/schema-check.ts'
import type { Core } from '../../core/core.ts'
import { sendJson } from '../answer.ts'
import { pageAsked } from '../query.ts'

const shown = {
  id: Type.String(),
  size_bytes: Type.Integer({ description: 'Room that it takes on the disk.' }),
  created_at: Type.String(),
  last_used_at: Type.String(),
  busy: Type.Boolean({ description: 'Whether a run has it.' }),
}
export const Thread = Type.Object(shown)
export const ThreadList = Type.Object({
  data: Type.Array(Thread),
  next_cursor: Type.Union([Type.String(), Type.Null()]),
})
export const InspectedThread = Type.Object({
  ...shown,
  quota_bytes: Type.Integer({ description: 'What it may hold.' }),
  used_bytes: Type.Integer({ description: 'What it holds.' }),
})

export const ForkBody = Type.Object(
  { to: Type.String({ description: 'Name of the copy; it must not exist yet.' }) },
  { additionalProperties: false },
)
const checkFork = compile(ForkBody)

/** The threads of the caller's org, by name. */
export const listThreads =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    const { items, nextCursor } = await core.threads.list(request.caller, pageAsked(request))
    return sendJson(reply, 200, JSON.stringify({ data: items, next_cursor: nextCursor }))
  }

export const getThread =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) =>
    sendJson(reply, 200, JSON.stringify(await core.threads.inspect(request.caller, idOf(request.params))))

/** Deletes a thread with all that it holds. */
export const deleteThread =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    await core.threads.remove(request.caller, idOf(request.params))
    await reply.code(204).send()
  }

/** Copies a thread, whole or not at all. */
export const forkThread =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    const { to } = checkFork(parseJson(request.body as Buffer))
    const made = await core.threads.fork(request.caller, idOf(request.params), to)
    return sendJson(reply, 201, JSON.stringify(made))
  }

const idOf = (params: unknown): string => (params as { id: string }).id
