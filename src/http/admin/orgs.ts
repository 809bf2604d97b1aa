import Type from 'typebox'
import type { Administered } from '../../core/admin/admin.ts'
import { createOrg, getOrg, listOrgs, renameOrg } from '../../core/admin/orgs.ts'
import { pageWords } from '../query.ts'
import { administer, pageOf, toList } from './answer.ts'

export const OrgBody = Type.Object({ name: Type.String() }, { additionalProperties: false })

export const Org = Type.Object({ id: Type.String(), name: Type.String(), created_at: Type.String() })

export const orgs = (on: Administered) => ({
  GET: administer(on, { query: pageWords }, async ({ admin, query }) => ({
    status: 200,
    body: toList(await listOrgs(on, admin, pageOf(query))),
  })),
  POST: administer(on, { body: OrgBody }, async ({ admin, body }) => ({
    status: 201,
    body: await createOrg(on, admin, body.name),
  })),
})

export const org = (on: Administered) => ({
  GET: administer(on, {}, async ({ admin, path }) => ({
    status: 200,
    body: await getOrg(on, admin, path.org!),
  })),
  PATCH: administer(on, { body: OrgBody }, async ({ admin, path, body }) => ({
    status: 200,
    body: await renameOrg(on, admin, path.org!, body.name),
  })),
})
