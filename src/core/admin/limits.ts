import { Refusal } from '../../base/errors.ts'
import type { UsageRow } from '../../store/admin-rows.ts'
import type { UsageLimits } from '../access/usage-limiter.ts'
import { dayMs, dayMsOf, toPeriod } from '../times.ts'
import {
  type Admin,
  type AdminContext,
  type ChangeContext,
  requireInOrg,
  requireInstance,
  unknown,
  withAudit,
} from './admin.ts'

/** An organization, or one of its keys. */
export interface LimitOwner {
  orgId: string
  keyId?: string
}

/** Returns the limits of an organization or key. @throws Refusal not_found. */
export async function limitsOf(on: ChangeContext, admin: Admin, owner: LimitOwner): Promise<UsageLimits> {
  await requireInOrg(on.store, admin, 'member', owner.orgId)
  return JSON.parse((await on.store.limits.get(await idOf(on, owner))) ?? '{}') as UsageLimits
}

/**
 * Replaces all limits of an organization or key; an absent one is removed. Limits of an organization require an
 * administrator of the whole instance, limits of a key an administrator of its organization.
 * @throws Refusal forbidden, not_found, invalid_argument.
 */
export async function setLimits(
  on: ChangeContext,
  admin: Admin,
  owner: LimitOwner,
  amounts: UsageLimits,
): Promise<UsageLimits> {
  await requireInOrg(on.store, admin, 'admin', owner.orgId)
  if (owner.keyId === undefined) requireInstance(admin, 'admin')
  else if (amounts.storage_bytes !== undefined) {
    throw new Refusal('invalid_argument', {
      field: 'storage_bytes',
      problem: 'is a limit of an organization, not of a key',
    })
  }
  const target = await idOf(on, owner)
  const details = { ...amounts }
  await withAudit(on.store, { admin, action: 'limits.set', orgId: owner.orgId, target, details }, ({ limits }) =>
    limits.set(target, JSON.stringify(amounts)),
  )
  return amounts
}

async function idOf({ store }: ChangeContext, { orgId, keyId }: LimitOwner): Promise<string> {
  if (keyId === undefined) return orgId
  const key = await store.keys.get(keyId)
  if (key === undefined || key.orgId !== orgId) throw unknown('key', keyId)
  return keyId
}

/**
 * Returns the usage of the runs of an organization, by day and key.
 * @param from first day, such as `2027-01-31`. @param until the day after the last one.
 * @throws Refusal not_found, invalid_argument.
 */
export async function usageOf(
  { store }: AdminContext,
  admin: Admin,
  orgId: string,
  { from, until }: { from?: string | undefined; until?: string | undefined },
): Promise<UsageRow[]> {
  await requireInOrg(store, admin, 'member', orgId)
  const untilMs = until === undefined ? dayMsOf('until') + dayMs : dayMsOf('until', until)
  const first = { text: from, field: 'from' }
  const period = toPeriod(first, { field: 'until', untilMs })
  return store.usage.list(orgId, period.from, period.until)
}
