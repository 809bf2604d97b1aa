/** `glovebox history` and `glovebox webhook-secret`: what is stored of runs, and how their webhooks are signed. */
import type { Command } from 'commander'
import { operator } from '../../core/admin/admin.ts'
import { historySettingsOf, setHistorySettings } from '../../core/admin/history.ts'
import { rotateWebhookSecret, webhookSecretOf } from '../../core/admin/webhooks.ts'
import { type Cli, withExamples } from '../command.ts'
import { printJson } from '../output.ts'
import { type AdminSession, adminCommand, usageError, withAdmin, withOrg } from './context.ts'

interface HistoryOptions {
  org: string
  keepCode?: string
  keepOutput?: string
}

export function register(program: Command, cli: Cli): void {
  withExamples(
    withOrg(adminCommand(program, 'history', 'Print what is stored of the runs of an organization, after changing it.'))
      .option('--keep-code <yes|no>', 'store the code of runs')
      .option('--keep-output <yes|no>', 'store the output of runs'),
    'glovebox history --org acme --keep-output yes',
  ).action(withAdmin(cli, history))
  withExamples(
    withOrg(
      adminCommand(program, 'webhook-secret', 'Print the secret that signs the webhooks of an organization.'),
    ).option('--rotate', 'replace it first; all deliveries from now on are signed with the new one'),
    'glovebox webhook-secret --org acme --rotate',
  ).action(withAdmin(cli, webhookSecret))
}

async function history(session: AdminSession, { org, keepCode, keepOutput }: HistoryOptions) {
  const wrong = [keepCode, keepOutput].find((given) => given !== undefined && given !== 'yes' && given !== 'no')
  if (wrong !== undefined) return usageError(`Use yes or no instead of ${wrong}.`, session.io)
  const { id } = await session.orgNamed(org)
  const changes = {
    ...(keepCode !== undefined && { keep_code: keepCode === 'yes' }),
    ...(keepOutput !== undefined && { keep_output: keepOutput === 'yes' }),
  }
  const hasChanges = Object.keys(changes).length > 0
  printJson(
    await (hasChanges ? setHistorySettings(session, operator, id, changes) : historySettingsOf(session, operator, id)),
    session.io,
  )
  return undefined
}

async function webhookSecret(session: AdminSession, { org, rotate = false }: { org: string; rotate?: boolean }) {
  const { id } = await session.orgNamed(org)
  const secret = await (rotate ? rotateWebhookSecret(session, operator, id) : webhookSecretOf(session, operator, id))
  session.printResult({ secret }, secret)
  return undefined
}
