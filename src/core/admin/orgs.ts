import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import type { OrgRow } from '../../store/store.ts'
import { type Page, type PageRequest, page } from '../paging.ts'
import {
  type Admin,
  type ChangeContext,
  checkName,
  requireInOrg,
  requireInstance,
  unknown,
  withAudit,
} from './admin.ts'

export interface OrgView {
  id: string
  name: string
  created_at: string
}

const toView = ({ id, name, createdAt }: OrgRow): OrgView => ({ id, name, created_at: createdAt })

/** Creates an organization. @throws Refusal forbidden, name_taken, invalid_argument. */
export async function createOrg({ store }: ChangeContext, admin: Admin, name: string): Promise<OrgView> {
  requireInstance(admin, 'admin')
  checkName('name', name)
  const org = { id: newId('org'), name, createdAt: timestamp() }
  await withAudit(
    store,
    { admin, action: 'org.create', orgId: org.id, target: org.id, details: { name } },
    async ({ orgs }) => {
      if (!(await orgs.create(org))) throw new Refusal('name_taken', { what: 'An org', name })
    },
  )
  return toView(org)
}

/** Lists organizations by name. An administrator of one organization gets only this one. */
export async function listOrgs({ store }: ChangeContext, admin: Admin, asked: PageRequest): Promise<Page<OrgView>> {
  if (admin.orgId !== null)
    return { items: [toView(await requireInOrg(store, admin, 'member', admin.orgId))], nextCursor: null }
  const { items, nextCursor } = await page(
    asked,
    [''],
    ({ name }: OrgRow) => [name],
    ([name], limit) => store.orgs.page(name, limit),
  )
  return { items: items.map(toView), nextCursor }
}

export async function getOrg({ store }: ChangeContext, admin: Admin, orgId: string): Promise<OrgView> {
  return toView(await requireInOrg(store, admin, 'member', orgId))
}

/**
 * Renames an organization.
 * @param name absent: it stays as it is.
 * @throws Refusal forbidden, not_found, name_taken, invalid_argument.
 */
export async function renameOrg(
  { store }: ChangeContext,
  admin: Admin,
  orgId: string,
  name: string | undefined,
): Promise<OrgView> {
  const org = await requireInOrg(store, admin, 'admin', orgId)
  if (name === undefined) return toView(org)
  checkName('name', name)
  await withAudit(store, { admin, action: 'org.rename', orgId, target: orgId, details: { name } }, async ({ orgs }) => {
    const renamed = await orgs.rename(orgId, name)
    if (renamed === 'taken') throw new Refusal('name_taken', { what: 'An org', name })
    if (!renamed) throw unknown('org', orgId)
  })
  return toView({ ...org, name })
}

/**
 * Shows a tool to all keys of an organization, or hides it from them.
 * @param known names of all existing tools.
 * @throws Refusal forbidden, not_found.
 */
export async function switchTool(
  { store }: ChangeContext,
  admin: Admin,
  orgId: string,
  { tool, shown, known }: { tool: string; shown: boolean; known: readonly string[] },
): Promise<void> {
  await requireInOrg(store, admin, 'admin', orgId)
  if (!known.includes(tool)) throw unknown('tool', tool)
  const action = shown ? 'tool.show' : 'tool.hide'
  await withAudit(store, { admin, action, orgId, target: tool }, ({ hiddenTools }) =>
    shown ? hiddenTools.show(orgId, tool) : hiddenTools.hide(orgId, tool),
  )
}

/** Returns the names of the tools that are hidden from an organization. */
export async function hiddenToolsOf({ store }: ChangeContext, admin: Admin, orgId: string): Promise<string[]> {
  await requireInOrg(store, admin, 'member', orgId)
  return store.hiddenTools.list(orgId)
}
