import Type from 'typebox'
import type { Administered } from '../../core/admin/admin.ts'
import { historySettingsOf, setHistorySettings } from '../../core/admin/history.ts'
import { rotateWebhookSecret, webhookSecretOf } from '../../core/admin/webhooks.ts'
import { administer } from './answer.ts'

export const HistoryBody = Type.Object(
  {
    keep_code: Type.Optional(Type.Boolean({ description: 'Whether code is kept with the run.' })),
    keep_output: Type.Optional(Type.Boolean({ description: 'Whether what it printed is kept with the run.' })),
  },
  { additionalProperties: false },
)

export const WebhookSecret = Type.Object({ secret: Type.String({ description: 'whsec_…' }) })

export const historyOf = (on: Administered) => ({
  GET: administer(on, {}, async ({ admin, path }) => ({
    status: 200,
    body: await historySettingsOf(on, admin, path.org!),
  })),
  PATCH: administer(on, { body: HistoryBody }, async ({ admin, path, body }) => ({
    status: 200,
    body: await setHistorySettings(on, admin, path.org!, body),
  })),
})

export const webhookSecret = (on: Administered) => ({
  GET: administer(on, {}, async ({ admin, path }) => ({
    status: 200,
    body: { secret: await webhookSecretOf(on, admin, path.org!) },
  })),
})

export const webhookSecretRotation = (on: Administered) => ({
  POST: administer(on, {}, async ({ admin, path }) => ({
    status: 200,
    body: { secret: await rotateWebhookSecret(on, admin, path.org!) },
  })),
})
