import Type from 'typebox'
import { type LimitOwner, limitsOf, setLimits, usageOf } from '../../core/admin/limits.ts'
import { adminOperation, type Operation, ok } from '../operation.ts'
import { named } from '../schemas.ts'
import { adminGroup as group, orgPath } from './orgs.ts'

const amount = (description: string) => Type.Optional(Type.Integer({ minimum: 0, maximum: 2 ** 53 - 1, description }))

export const LimitsBody = named(
  'LimitsRequest',
  Type.Object(
    {
      runs_per_minute: amount('Runs started within any 60 seconds.'),
      concurrent_runs: amount('Runs at the same time.'),
      run_seconds_per_day: amount('Total duration of all runs of a day (UTC), in seconds.'),
      storage_bytes: amount('Sum of the quotas of all threads, volumes and sandboxes; for organizations only.'),
      sandboxes: amount('Named sandboxes that run or are paused at the same time; 64 for organizations by default.'),
      sandbox_memory_bytes: amount('Sum of the memory limits of these sandboxes.'),
      sandbox_disk_bytes: amount('Sum of the disk quotas of all named sandboxes, stopped ones included.'),
    },
    { additionalProperties: false, description: 'Omitted limits are unlimited.' },
  ),
)

const Limits = named(
  'Limits',
  Type.Object({
    runs_per_minute: Type.Optional(Type.Integer()),
    concurrent_runs: Type.Optional(Type.Integer()),
    run_seconds_per_day: Type.Optional(Type.Integer()),
    storage_bytes: Type.Optional(Type.Integer()),
    sandboxes: Type.Optional(Type.Integer()),
    sandbox_memory_bytes: Type.Optional(Type.Integer()),
    sandbox_disk_bytes: Type.Optional(Type.Integer()),
  }),
)

const Usage = named(
  'Usage',
  Type.Object({
    data: Type.Array(
      Type.Object({
        day: Type.String(),
        key_id: Type.String(),
        runs: Type.Integer(),
        run_seconds: Type.Number(),
        cpu_seconds: Type.Number(),
        refused: Type.Integer({ description: 'Calls refused for a limit or for lack of capacity.' }),
        sandbox_seconds: Type.Number({ description: 'Time for which the named sandboxes that it started ran.' }),
      }),
    ),
  }),
)

const ownerOf = ({ org, key }: { org?: string; key?: string }): LimitOwner => ({
  orgId: org!,
  ...(key !== undefined && { keyId: key }),
})

/** The operations on the limits of an organization, or of a key where the path names one. */
const limitsAt = (owner: 'Org' | 'Key', path: string) => {
  const whose = owner === 'Org' ? 'an organization' : 'a key'
  return [
    adminOperation({
      id: `get${owner}Limits`,
      method: 'GET',
      path,
      group,
      summary: `Get the limits of ${whose}`,
      answers: { 200: Limits },
      refusals: [],
      handle: async ({ context, admin, params }) => ok(await limitsOf(context, admin, ownerOf(params))),
    }),
    adminOperation({
      id: `set${owner}Limits`,
      method: 'PUT',
      path,
      group,
      summary: `Replace all limits of ${whose}`,
      body: LimitsBody,
      answers: { 200: Limits },
      refusals: [],
      handle: async ({ context, admin, params, body }) => ok(await setLimits(context, admin, ownerOf(params), body)),
    }),
  ]
}

export const limitOperations: readonly Operation[] = [
  ...limitsAt('Key', `${orgPath}/keys/{key}/limits`),
  ...limitsAt('Org', `${orgPath}/limits`),
  adminOperation({
    id: 'getUsage',
    method: 'GET',
    path: `${orgPath}/usage`,
    group,
    summary: 'Get the usage of an organization by day and key',
    query: {
      from: 'First day, such as 2027-01-31; by default 30 days before `until`.',
      until: 'The day after the last one; by default tomorrow.',
    },
    answers: { 200: Usage },
    refusals: [],
    handle: async ({ context, admin, params, query }) => {
      const rows = await usageOf(context, admin, params.org, query)
      const data = rows.map(({ day, keyId, runs, runMs, cpuMs, refused, sandboxMs }) => ({
        day,
        key_id: keyId,
        runs,
        run_seconds: runMs / 1_000,
        cpu_seconds: cpuMs / 1_000,
        refused,
        sandbox_seconds: sandboxMs / 1_000,
      }))
      return ok({ data })
    },
  }),
]
