import Type from 'typebox'
import { historySettingsOf, setHistorySettings } from '../../core/admin/history.ts'
import { rotateWebhookSecret, webhookSecretOf } from '../../core/admin/webhooks.ts'
import { adminOperation, type Operation, ok } from '../operation.ts'
import { named } from '../schemas.ts'
import { adminGroup as group, orgPath } from './orgs.ts'

const HistoryBody = named(
  'HistorySettings',
  Type.Object(
    {
      keep_code: Type.Optional(Type.Boolean({ description: 'Whether the code of each run is kept.' })),
      keep_output: Type.Optional(Type.Boolean({ description: 'Whether the output of each run is kept.' })),
    },
    { additionalProperties: false },
  ),
)

const WebhookSecret = named('WebhookSecret', Type.Object({ secret: Type.String({ description: 'whsec_…' }) }))

export const historyOperations: readonly Operation[] = [
  adminOperation({
    id: 'getHistory',
    method: 'GET',
    path: `${orgPath}/history`,
    group,
    summary: 'Get retention settings',
    answers: { 200: HistoryBody },
    refusals: [],
    handle: async ({ context, admin, params }) => ok(await historySettingsOf(context, admin, params.org)),
  }),
  adminOperation({
    id: 'setHistory',
    method: 'PATCH',
    path: `${orgPath}/history`,
    group,
    summary: 'Update retention settings',
    body: HistoryBody,
    answers: { 200: HistoryBody },
    refusals: [],
    handle: async ({ context, admin, params, body }) => ok(await setHistorySettings(context, admin, params.org, body)),
  }),
  adminOperation({
    id: 'getWebhookSecret',
    method: 'GET',
    path: `${orgPath}/webhook-secret`,
    group,
    summary: 'Get the secret that signs webhooks',
    answers: { 200: WebhookSecret },
    refusals: [],
    handle: async ({ context, admin, params }) => ok({ secret: await webhookSecretOf(context, admin, params.org) }),
  }),
  adminOperation({
    id: 'rotateWebhookSecret',
    method: 'POST',
    path: `${orgPath}/webhook-secret/rotate`,
    group,
    summary: 'Replace the secret that signs webhooks',
    answers: { 200: WebhookSecret },
    refusals: [],
    handle: async ({ context, admin, params }) => ok({ secret: await rotateWebhookSecret(context, admin, params.org) }),
  }),
]
