/** `glovebox tokens`: the tokens of the admin API. */
import type { Command } from 'commander'
import { operator, roles } from '../../core/admin/admin.ts'
import { createToken, listTokens, revokeToken } from '../../core/admin/tokens.ts'
import { type Cli, collect, withExamples } from '../command.ts'
import { type Columns, printItems } from '../output.ts'
import { type AdminSession, adminCommand, everyItem, usageError, withAdmin } from './context.ts'

interface TokenOptions {
  name: string
  role: string
  org?: string
  expires?: string
  runtimeTools?: readonly string[]
  runtimeToolsExcept?: readonly string[]
}

export function register(program: Command, cli: Cli): void {
  const tokens = program.command('tokens').description('Manage the tokens of the admin API (/admin/v1).')
  withExamples(
    adminCommand(tokens, 'create', 'Create a token and print its secret, which is shown only once.')
      .requiredOption('--role <role>', 'owner (everything), admin (everything except tokens) or member (read only)')
      .option('--name <text>', 'display name', 'unnamed')
      .option('--org <name>', 'restrict the token to this organization')
      .option('--expires <time>', 'expiry time, such as 2027-01-31T12:00:00Z')
      .option(
        '--runtime-tools <pattern>',
        'limit the token to these runtime tools, such as cache_*; can be repeated',
        collect,
      )
      .option('--runtime-tools-except <pattern>', 'exclude these runtime tools; can be repeated', collect),
    'glovebox tokens create --role owner --name ops',
    'glovebox tokens create --role member --name dashboard --org acme',
  ).action(withAdmin(cli, create))
  adminCommand(tokens, 'list', 'List tokens, without their secrets.').action(withAdmin(cli, list))
  withExamples(
    adminCommand(tokens, 'revoke <id>', 'Revoke a token permanently.'),
    'glovebox tokens revoke tok_…',
  ).action(withAdmin(cli, revoke))
}

async function create(session: AdminSession, { name, role, org, expires, ...options }: TokenOptions) {
  const { runtimeTools: included = ['*'], runtimeToolsExcept: excluded = [] } = options
  const known = roles.find((one) => one === role)
  if (known === undefined) return usageError(`--role must be one of ${roles.join(', ')}.`, session.io)
  const token = await createToken(session, operator, {
    ...{ name, role: known },
    org_id: org === undefined ? null : (await session.orgNamed(org)).id,
    expires_at: expires ?? null,
    ...((options.runtimeTools || options.runtimeToolsExcept) && { runtime_tools: { included, excluded } }),
  })
  session.notify(`Created token ${token.id} with role ${role}. The secret is shown only once:`)
  session.printResult(token, token.secret)
  return undefined
}

type ListedToken = Awaited<ReturnType<typeof listTokens>>['items'][number]

const columns: Columns<ListedToken> = {
  ID: ({ id }) => id,
  TOKEN: ({ prefix }) => `${prefix}…`,
  ROLE: ({ role }) => role,
  ORG: (token) => token.org_id ?? 'all',
  NAME: ({ name }) => name,
  CREATED: (token) => token.created_at,
  STATE: (token) => (token.revoked_at === null ? (token.expires_at ?? 'active') : `revoked ${token.revoked_at}`),
}

async function list(session: AdminSession, options: { json?: boolean }) {
  const tokens = await everyItem((cursor) => listTokens(session, operator, { cursor }))
  printItems(tokens, columns, options, session.io)
  return undefined
}

async function revoke(session: AdminSession, id: string) {
  await revokeToken(session, operator, id)
  session.printResult({ id, revoked: true }, `Revoked ${id}.`)
  return undefined
}
