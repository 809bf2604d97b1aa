import Type from 'typebox'
import { type Administered, type Role, roles } from '../../core/admin/admin.ts'
import { createToken, listTokens, revokeToken } from '../../core/admin/tokens.ts'
import { pageWords } from '../query.ts'
import { administer, pageOf, toList } from './answer.ts'

export const TokenBody = Type.Object(
  {
    name: Type.String(),
    role: Type.Unsafe<Role>({ type: 'string', enum: [...roles] }),
    org_id: Type.Optional(
      Type.Unsafe<string | null>({
        anyOf: [{ type: 'string' }, { type: 'null' }],
        description: 'The one org that it is for; null: the whole instance.',
      }),
    ),
    expires_at: Type.Optional(
      Type.Unsafe<string | null>({
        anyOf: [{ type: 'string', description: 'ISO 8601; null: never.' }, { type: 'null' }],
      }),
    ),
  },
  { additionalProperties: false },
)

export const tokens = (on: Administered) => ({
  GET: administer(on, { query: pageWords }, async ({ admin, query }) => ({
    status: 200,
    body: toList(await listTokens(on, admin, pageOf(query))),
  })),
  POST: administer(on, { body: TokenBody }, async ({ admin, body }) => ({
    status: 201,
    body: await createToken(on, admin, body),
  })),
})

export const token = (on: Administered) => ({
  DELETE: administer(on, {}, async ({ admin, path }) => {
    await revokeToken(on, admin, path.token!)
    return { status: 204 }
  }),
})
