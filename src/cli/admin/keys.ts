/** `glovebox keys`: API keys. */
import { readFileSync } from 'node:fs'
import { type Command, InvalidArgumentError, Option } from 'commander'
import { timestamp } from '../../base/clock.ts'
import { newId } from '../../base/ids.ts'
import { asMap, readFileText } from '../../config-sources.ts'
import { type SecretForm, secretForms } from '../../core/access/keys.ts'
import { checkName, operator } from '../../core/admin/admin.ts'
import { createKey, type KeySettings, listKeys, revokeKey, rotateKey, updateKey } from '../../core/admin/keys.ts'
import type { UpstreamPolicy } from '../../core/upstreams/policy.ts'
import type { KeyRow, OrgRow } from '../../store/store.ts'
import { type Cli, collect, withExamples } from '../command.ts'
import { type Columns, printItems } from '../output.ts'
import {
  type AdminSession,
  adminCommand,
  defaultOrgName,
  everyItem,
  usageError,
  withAdmin,
  withOrg,
} from './context.ts'
import { toolNames } from './tools.ts'

/** Options that describe a key; an absent one changes nothing. */
interface KeyOptions {
  name?: string
  profile?: string
  /** ISO 8601, or `never`. */
  expires?: string
  /** `NAME=value`, one for each. */
  env?: readonly string[]
  /** Comma-separated names, or `all`. */
  tools?: string
  upstreamPolicy?: UpstreamPolicy | null
  /** Comma-separated names, or `all`. */
  namespace?: string
  form?: SecretForm
}

export function register(program: Command, cli: Cli): void {
  const keys = program.command('keys').description('Manage API keys.')
  withExamples(
    keyOptions(
      withOrg(adminCommand(keys, 'create', 'Create a key and print its secret, which is shown only once.')),
    ).addOption(new Option('--form <name>', 'form of its secret').choices(secretForms).default('glovebox')),
    'glovebox keys create --org acme --name "build server"',
    'glovebox keys create --org acme --expires 2027-12-31T00:00:00Z --tools sandbox_execute',
  ).action(withAdmin(cli, create))
  withExamples(
    adminCommand(keys, 'list', 'List keys, without their secrets.').option(
      '--org <name>',
      'keys of this organization only',
    ),
    'glovebox keys list --org acme',
  ).action(withAdmin(cli, list))
  withExamples(
    keyOptions(adminCommand(keys, 'update <id>', 'Change a key. Options that are not given stay as they are.')),
    'glovebox keys update key_… --tools all --expires never',
  ).action(withAdmin(cli, update))
  withExamples(
    adminCommand(
      keys,
      'rotate <id>',
      'Replace the secret of a key and print the new one, which is shown only once.',
    ).option('--overlap <seconds>', 'time for which the former secret stays valid', '0'),
    'glovebox keys rotate key_… --overlap 3600',
  ).action(withAdmin(cli, rotate))
  withExamples(
    adminCommand(keys, 'revoke <id>', 'Revoke a key permanently and cancel its running executions.'),
    'glovebox keys revoke key_…',
  ).action(withAdmin(cli, revoke))
}

const keyOptions = (command: Command): Command =>
  command
    .option('--profile <name>', 'profile of its runs')
    .option('--name <text>', 'display name')
    .option('--expires <time>', 'expiry time, such as 2027-01-31T12:00:00Z, or "never"')
    .option('--env <NAME=value>', 'environment variable of its runs; may be repeated', collect)
    .option('--tools <names>', 'comma-separated tools that it may use, or "all"')
    .option(
      '--upstream-policy <file>',
      'YAML file with its limits at upstreams, as in the admin API, or "none"',
      readPolicy,
    )
    .option('--namespace <names>', 'comma-separated namespaces of sandboxes that it may use, or "all"')

/** Reads the file before the command becomes the user of the API server, which may not be able to read it. */
function readPolicy(file: string): UpstreamPolicy | null {
  if (file === 'none') return null
  try {
    return asMap(readFileText(file, readFileSync(file, 'utf8')), file)
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message)
  }
}

async function create(session: AdminSession, { org: orgName, ...options }: KeyOptions & { org: string }) {
  const org = await orgForKey(session, orgName)
  const key = await createKey(
    session,
    operator,
    org.id,
    { ...toSettings(options), ...(options.form && { secret_form: options.form }) },
    toolNames,
  )
  session.notify(`Created key ${key.id} for ${org.name} with profile ${key.profile}. The secret is shown only once:`)
  session.printResult(key, key.secret)
  return undefined
}

/** Creates the organization if it does not exist. */
async function orgForKey({ store, defaultOrg }: AdminSession, name: string): Promise<OrgRow> {
  checkName('org', name)
  if (name === defaultOrgName && defaultOrg !== undefined) return defaultOrg
  return store.orgs.ensureNamed({ id: newId('org'), name, createdAt: timestamp() })
}

type ListedKey = Awaited<ReturnType<typeof listKeys>>['items'][number] & { org: string }

const columns: Columns<ListedKey> = {
  ID: ({ id }) => id,
  KEY: ({ prefix }) => `${prefix}…`,
  ORG: ({ org }) => org,
  PROFILE: ({ profile }) => profile,
  NAME: ({ name }) => name || '-',
  CREATED: (key) => key.created_at,
  STATE: (key) => stateOf(key.revoked_at, key.expires_at),
}

async function list(session: AdminSession, options: { org?: string; json?: boolean }) {
  const orgs = options.org === undefined ? await session.store.orgs.list() : [await session.orgNamed(options.org)]
  const found: ListedKey[] = []
  for (const org of orgs) {
    const keys = await everyItem((cursor) => listKeys(session, operator, org.id, { cursor }))
    found.push(...keys.map((key) => ({ ...key, org: org.name })))
  }
  printItems(found, columns, options, session.io)
  return undefined
}

function stateOf(revokedAt: string | null, expiresAt: string | null): string {
  if (revokedAt !== null) return `revoked ${revokedAt}`
  return expiresAt === null ? 'active' : `active until ${expiresAt}`
}

const update = (session: AdminSession, id: string, options: KeyOptions) =>
  withKey(session, id, async ({ orgId }) => {
    const key = await updateKey(session, operator, { orgId, id }, toSettings(options), toolNames)
    session.printResult(key, `Updated ${id}.`)
  })

const rotate = (session: AdminSession, id: string, { overlap }: { overlap: string }) =>
  withKey(session, id, async ({ orgId }) => {
    const key = await rotateKey(session, operator, { orgId, id }, Number(overlap))
    session.notify(`Replaced the secret of ${id}. The new one is shown only once:`)
    session.printResult(key, key.secret)
  })

const revoke = (session: AdminSession, id: string) =>
  withKey(session, id, async ({ orgId }) => {
    const revoked = await revokeKey(session, operator, orgId, id)
    session.printResult({ id, revoked }, revoked ? `Revoked ${id}.` : `${id} was already revoked.`)
  })

async function withKey(session: AdminSession, id: string, work: (key: KeyRow) => Promise<void>) {
  const key = await session.store.keys.get(id)
  // Rows without a secret stand for callers that need no key.
  if (!key?.secretHash) return usageError(`There is no key ${id}. List the keys with: glovebox keys list`, session.io)
  await work(key)
  return undefined
}

const toSettings = ({
  name,
  profile,
  expires,
  env = [],
  tools,
  namespace,
  upstreamPolicy,
}: KeyOptions): KeySettings => ({
  ...(name !== undefined && { name }),
  ...(profile !== undefined && { profile }),
  ...(expires !== undefined && { expires_at: expires === 'never' ? null : expires }),
  ...(env.length > 0 && { env_vars: Object.fromEntries(env.map(toPair)) }),
  ...(tools !== undefined && { tools: tools === 'all' ? null : tools.split(',') }),
  ...(upstreamPolicy !== undefined && { upstream_policy: upstreamPolicy }),
  ...(namespace !== undefined && { namespaces: namespace === 'all' ? null : namespace.split(',') }),
})

function toPair(text: string): [string, string] {
  const at = text.indexOf('=')
  return at === -1 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)]
}
