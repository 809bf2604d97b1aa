import { type HistorySettings, readHistorySettings } from '../runs/history-settings.ts'
import { type Admin, type AdminContext, requireInOrg, withAudit } from './admin.ts'

/** Returns the history settings of an organization. @throws Refusal not_found. */
export async function historySettingsOf(
  { store }: AdminContext,
  admin: Admin,
  orgId: string,
): Promise<HistorySettings> {
  await requireInOrg(store, admin, 'member', orgId)
  return readHistorySettings(await store.orgSettings.get(orgId))
}

/** Changes the history settings for future runs, within a second. @throws Refusal forbidden, not_found. */
export async function setHistorySettings(
  on: AdminContext,
  admin: Admin,
  orgId: string,
  changes: Partial<HistorySettings>,
): Promise<HistorySettings> {
  await requireInOrg(on.store, admin, 'admin', orgId)
  const settings = { ...(await historySettingsOf(on, admin, orgId)), ...changes }
  await withAudit(on.store, { admin, action: 'history.set', orgId, target: orgId, details: { ...settings } }, (rows) =>
    rows.orgSettings.set(orgId, JSON.stringify(settings)),
  )
  return settings
}
