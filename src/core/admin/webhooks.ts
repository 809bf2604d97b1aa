import { replaceWebhookSecret, webhookSecret } from '../jobs/webhooks.ts'
import { type Admin, type Administered, act, requireInOrg } from './admin.ts'

/** What the webhooks of an org are signed with. @throws Refusal forbidden, not_found. */
export async function webhookSecretOf({ store, vault }: Administered, admin: Admin, orgId: string): Promise<string> {
  await requireInOrg(store, admin, 'admin', orgId)
  return webhookSecret(store, vault, orgId)
}

/** Makes another, which every try from now on is signed with. @throws Refusal forbidden, not_found. */
export async function rotateWebhookSecret(
  { store, vault }: Administered,
  admin: Admin,
  orgId: string,
): Promise<string> {
  await requireInOrg(store, admin, 'admin', orgId)
  return act(store, { admin, action: 'webhook_secret.rotate', orgId, target: orgId }, (rows) =>
    replaceWebhookSecret(rows, vault, orgId),
  )
}
