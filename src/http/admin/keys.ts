import Type from 'typebox'
import type { Administered } from '../../core/admin/admin.ts'
import { createKey, getKey, listKeys, revokeKey, rotateKey, updateKey } from '../../core/admin/keys.ts'
import { pageWords } from '../query.ts'
import { administer, pageOf, toList } from './answer.ts'

const nullable = (schema: object) => Type.Unsafe<never>({ anyOf: [schema, { type: 'null' }] })

export const KeyBody = Type.Object(
  {
    name: Type.Optional(Type.String({ description: 'For people alone.' })),
    profile: Type.Optional(Type.String({ description: 'Name of a profile; `default` where a new key says nothing.' })),
    expires_at: Type.Optional(
      Type.Unsafe<string | null>(nullable({ type: 'string', description: 'ISO 8601; null: never.' })),
    ),
    env_vars: Type.Optional(
      Type.Unsafe<Record<string, string>>({
        type: 'object',
        additionalProperties: { type: 'string' },
        description: 'Variables of its runs: over those of the profile, below those of a call. Kept sealed.',
      }),
    ),
    tools: Type.Optional(
      Type.Unsafe<string[] | null>(
        nullable({ type: 'array', items: { type: 'string' }, description: 'null: all that its profile offers.' }),
      ),
    ),
  },
  { additionalProperties: false },
)

/** A day of both secrets is enough to bring the new one to every client. */
const overlapMaxSeconds = 7 * 24 * 3600

export const RotateBody = Type.Object(
  {
    overlap_seconds: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: overlapMaxSeconds,
        description: 'How long the secret before is still good.',
      }),
    ),
  },
  { additionalProperties: false },
)

/** @param tools names of all tools there are. */
export const keysOf = (on: Administered, tools: readonly string[]) => ({
  GET: administer(on, { query: pageWords }, async ({ admin, path, query }) => ({
    status: 200,
    body: toList(await listKeys(on, admin, path.org!, pageOf(query))),
  })),
  POST: administer(on, { body: KeyBody }, async ({ admin, path, body }) => ({
    status: 201,
    body: await createKey(on, admin, path.org!, body, tools),
  })),
})

export const key = (on: Administered, tools: readonly string[]) => ({
  GET: administer(on, {}, async ({ admin, path }) => ({
    status: 200,
    body: await getKey(on, admin, path.org!, path.key!),
  })),
  PATCH: administer(on, { body: KeyBody }, async ({ admin, path, body }) => ({
    status: 200,
    body: await updateKey(on, admin, { orgId: path.org!, id: path.key! }, body, tools),
  })),
  DELETE: administer(on, {}, async ({ admin, path }) => {
    await revokeKey(on, admin, path.org!, path.key!)
    return { status: 204 }
  }),
})

export const keyRotation = (on: Administered) => ({
  POST: administer(on, { body: RotateBody }, async ({ admin, path, body }) => ({
    status: 200,
    body: await rotateKey(on, admin, { orgId: path.org!, id: path.key! }, body.overlap_seconds ?? 0),
  })),
})
