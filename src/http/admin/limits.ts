import Type from 'typebox'
import type { Administered } from '../../core/admin/admin.ts'
import { type LimitOwner, limitsOf, setLimits, usageOf } from '../../core/admin/limits.ts'
import { administer } from './answer.ts'

const amount = (description: string) => Type.Optional(Type.Integer({ minimum: 0, maximum: 2 ** 53 - 1, description }))

export const LimitsBody = Type.Object(
  {
    runs_per_minute: amount('Runs that begin within any 60 seconds.'),
    concurrent_runs: amount('Runs at once.'),
    run_seconds_per_day: amount('Duration of all runs of a day (UTC) together, in seconds.'),
    storage_bytes: amount('Sum of the quotas of all threads and volumes; of an org alone.'),
  },
  { additionalProperties: false, description: 'What is absent is not limited.' },
)

const ownerIn = ({ org, key }: Readonly<Record<string, string>>): LimitOwner => ({
  orgId: org!,
  ...(key !== undefined && { keyId: key }),
})

/** Of an org, or of a key where the path names one. */
export const limits = (on: Administered) => ({
  GET: administer(on, {}, async ({ admin, path }) => ({ status: 200, body: await limitsOf(on, admin, ownerIn(path)) })),
  PUT: administer(on, { body: LimitsBody }, async ({ admin, path, body }) => ({
    status: 200,
    body: await setLimits(on, admin, ownerIn(path), body),
  })),
})

export const usage = (on: Administered) => ({
  GET: administer(on, { query: ['until', 'from'] }, async ({ admin, path, query }) => {
    const rows = await usageOf(on, admin, path.org!, query)
    const data = rows.map(({ day, keyId, runs, runMs, cpuMs }) => ({
      day,
      key_id: keyId,
      runs,
      run_seconds: runMs / 1_000,
      cpu_seconds: cpuMs / 1_000,
    }))
    return { status: 200, body: { data } }
  }),
})
