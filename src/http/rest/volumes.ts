import type { RouteHandlerMethod } from 'fastify'
import Type from 'typebox'
import type { Core } from '../../core/core.ts'
import { sendJson } from '../answer.ts'
import { pageAsked } from '../query.ts'

export const CallerVolume = Type.Object({
  slug: Type.String(),
  name: Type.String(),
  mode: Type.Unsafe<'ro' | 'rw'>({ type: 'string', enum: ['ro', 'rw'] }),
  path: Type.String({ description: 'Where runs find it.' }),
  size_bytes: Type.Integer({ description: 'Room that it takes on the disk.' }),
  quota_bytes: Type.Integer(),
  quota_files: Type.Integer(),
  created_at: Type.String(),
})

export const CallerVolumeList = Type.Object({
  data: Type.Array(CallerVolume),
  next_cursor: Type.Union([Type.String(), Type.Null()]),
})

/** The volumes that runs of this key have. */
export const listVolumes =
  (core: Core): RouteHandlerMethod =>
  async (request, reply) => {
    const { items, nextCursor } = await core.volumes.list(request.caller, pageAsked(request))
    return sendJson(reply, 200, JSON.stringify({ data: items, next_cursor: nextCursor }))
  }
