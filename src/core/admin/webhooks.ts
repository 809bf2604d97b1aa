import { replaceWebhookSecret, webhookSecret } from '../jobs/webhooks.ts'
import { type Admin, type AdminContext, requireInOrg, withAudit } from './admin.ts'

/** Returns the secret that an organization's webhooks are signed with. @throws Refusal forbidden, not_found. */
export async function webhookSecretOf({ store, vault }: AdminContext, admin: Admin, orgId: string): Promise<string> {
  await requireInOrg(store, admin, 'admin', orgId)
  const secret = await webhookSecret(store, vault, orgId)
  await store.sync()
  return secret
}

/** Replaces the secret. Further attempts are signed with the new one. @throws Refusal forbidden, not_found. */
export async function rotateWebhookSecret(
  { store, vault }: AdminContext,
  admin: Admin,
  orgId: string,
): Promise<string> {
  await requireInOrg(store, admin, 'admin', orgId)
  return withAudit(store, { admin, action: 'webhook_secret.rotate', orgId, target: orgId }, (rows) =>
    replaceWebhookSecret(rows, vault, orgId),
  )
}
