import Type from 'typebox'
import { applyDeclaration } from '../../core/admin/declared/apply.ts'
import { changeActions, type Declaration, declaredKinds } from '../../core/admin/declared/declaration.ts'
import { adminOperation, type Operation, ok } from '../operation.ts'
import { named, oneOf } from '../schemas.ts'
import { declaredOrgs } from './declaration.ts'
import { adminGroup as group } from './orgs.ts'

const DeclarationBody = named(
  'Declaration',
  Type.Object(
    {
      orgs: Type.Unsafe<Declaration['orgs']>(declaredOrgs()),
      prune: Type.Optional(
        Type.Boolean({
          description:
            'Deletes what the sections that are present do not contain. Organizations and threads are never deleted.',
        }),
      ),
      dry_run: Type.Optional(Type.Boolean({ description: 'Returns the changes without making them.' })),
    },
    { additionalProperties: false },
  ),
)

const Applied = named(
  'AppliedDeclaration',
  Type.Object({
    changes: Type.Array(
      Type.Object({
        action: oneOf(changeActions),
        kind: oneOf(declaredKinds),
        org: Type.String(),
        name: Type.String(),
        fields: Type.Array(Type.String(), { description: 'The changed settings of an update.' }),
      }),
    ),
    keys: Type.Array(
      Type.Object({ org: Type.String(), name: Type.String(), id: Type.String(), secret: Type.String() }),
      { description: 'The keys that were created. Their secrets are shown only once.' },
    ),
    warnings: Type.Array(Type.String()),
  }),
)

export const applyOperations: readonly Operation[] = [
  adminOperation({
    id: 'applyDeclaration',
    method: 'POST',
    path: '/admin/v1/apply',
    group,
    summary: 'Bring organizations into a declared state, in one transaction',
    body: DeclarationBody,
    answers: { 200: Applied },
    refusals: ['declaration_invalid'],
    handle: async ({ server, context, admin, body: { orgs, prune = false, dry_run: dryRun = false } }) =>
      ok(await applyDeclaration(context, admin, { orgs }, { prune, dryRun, knownTools: server.catalog.toolNames })),
  }),
]
