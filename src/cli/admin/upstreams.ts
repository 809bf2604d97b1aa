/** `glovebox upstreams`: the MCP servers that keys of an organization reach through this one. */
import { readFileSync } from 'node:fs'
import { type Command, Option } from 'commander'
import { Refusal, StartRefused } from '../../base/errors.ts'
import { type NetworkPolicy, networkPolicies } from '../../base/network.ts'
import { asMap, readFileText } from '../../config-sources.ts'
import { operator } from '../../core/admin/admin.ts'
import { getUpstreamDetails } from '../../core/admin/upstream-installations.ts'
import type { UpstreamView } from '../../core/admin/upstream-view.ts'
import {
  approveUpstream,
  changesOfUpstream,
  createUpstream,
  listUpstreams,
  refreshUpstream,
  removeUpstream,
  testUpstream,
  type UpstreamRef,
  type UpstreamSettings,
  updateUpstream,
} from '../../core/admin/upstreams.ts'
import { programSharings } from '../../core/upstreams/programs/program.ts'
import { credentialModes } from '../../core/upstreams/secrets.ts'
import { importServers } from '../../gateway/import.ts'
import { type Cli, withExamples } from '../command.ts'
import { type Columns, printItems, printJson } from '../output.ts'
import { type AdminSession, adminCommand, everyItem, refOf, usageError, withAdmin, withOrg } from './context.ts'
import { credentials, login, logout } from './upstream-logins.ts'
import { followed } from './upstream-progress.ts'

interface UpstreamOptions {
  org: string
  url?: string
  displayName?: string
  description?: string
  tag?: string[]
  /** In seconds. */
  timeout?: string
  /** Path of a file, as the next one. */
  bearerFile?: string
  secretsFile?: string
  transport?: UpstreamView['transport']
  network?: NetworkPolicy
  allow?: string[]
  image?: string
  sharing?: (typeof programSharings)[number]
  oauth?: boolean
  credentialMode?: UpstreamView['credential_mode']
  enable?: boolean
  disable?: boolean
}

export function register(program: Command, cli: Cli): void {
  const upstreams = program.command('upstreams').description('Manage the MCP servers that keys reach through this one.')
  const add = (usage: string, description: string) => withOrg(adminCommand(upstreams, usage, description))
  withExamples(
    withSettings(add('add <name> <url-or-command...>', 'Register an MCP server as vendor/name, and read its tools.')),
    'glovebox upstreams add exa/exa https://mcp.exa.ai/mcp --bearer-file exa.key',
    'glovebox upstreams add team/memory -- npx -y @modelcontextprotocol/server-memory',
  ).action((name: string, words: string[], options: UpstreamOptions, command: Command) => {
    const settings = withPlace(toSettings(options), words)
    return withAdmin(cli, (session) => create(session, name, settings, options))(command)
  })
  withSettings(add('update <name>', 'Change an MCP server. Options that are not given keep their value.'))
    .option('--url <url>', 'address')
    .option('--enable', 'offer it to keys')
    .option('--disable', 'hide it from keys')
    .action((name: string, options: UpstreamOptions, command: Command) => {
      const settings = toSettings(options)
      return withAdmin(cli, (session) => update(session, name, settings, options))(command)
    })
  withExamples(
    add('import <file>', 'Register the servers in the configuration of an MCP client, or in a server.json.').option(
      '--vendor <name>',
      'vendor of servers whose name has none',
      'imported',
    ),
    'glovebox upstreams import .mcp.json --vendor team',
  ).action((file: string, options: UpstreamOptions & { vendor: string }, command: Command) => {
    const content = asMap(readFileText(file, readText(file)), `The file ${file}`)
    return withAdmin(cli, (session) => importAll(session, content, options))(command)
  })
  add('list', 'List the MCP servers of an organization.').action(withAdmin(cli, list))
  add('show <name>', 'Print an MCP server as JSON, without its secrets.').action(withAdmin(cli, show))
  add('test <name>', 'Connect to an MCP server and print what it offers as JSON.').action(withAdmin(cli, test))
  add('refresh <name>', 'Read the tools of an MCP server. Changed tools are suspended until they are approved.').action(
    withAdmin(cli, refresh),
  )
  add('changes <name>', 'Print the tools that have changed since they were approved as JSON.').action(
    withAdmin(cli, changes),
  )
  add('approve <name>', 'Approve the changed tools of an MCP server.').action(withAdmin(cli, approve))
  withExamples(
    add('login <name>', 'Log in to an MCP server with OAuth. All keys of the organization use the tokens.')
      .option('--device', 'log in with a browser on another machine')
      .option('--port <number>', 'port of 127.0.0.1 that the browser is redirected to; any free one by default'),
    'glovebox upstreams login linear/linear',
  ).action(withAdmin(cli, login))
  add('logout <name>', 'Remove the login of an organization, or the credential of a key.')
    .option('--key <id>', 'key with a credential of its own')
    .action(withAdmin(cli, logout))
  add('credentials <name>', 'List the logins and the credentials of keys.').action(withAdmin(cli, credentials))
  add('remove <name>', 'Remove an MCP server with its credentials.').action(withAdmin(cli, remove))
}

const withSettings = (command: Command): Command =>
  command
    .addOption(
      new Option(
        '--transport <name>',
        'http is Streamable HTTP, sse the older HTTP+SSE, stdio a program in a sandbox',
      ).choices(['http', 'sse', 'stdio']),
    )
    .addOption(
      new Option('--network <policy>', 'what a program can reach; nothing by default').choices(networkPolicies),
    )
    .option('--allow <destination...>', 'destinations of its network, such as api.example.com')
    .option('--image <name>', 'image of a program')
    .addOption(
      new Option('--sharing <how>', 'whether each session has a process, or all keys share one').choices(
        programSharings,
      ),
    )
    .option('--display-name <text>', 'name for people')
    .option('--description <text>', 'what it is for')
    .option('--tag <text...>', 'capability tags')
    .option('--timeout <seconds>', 'time until a response begins')
    .option('--bearer-file <file>', 'file with a token that is sent as Authorization: Bearer')
    .option('--secrets-file <file>', 'YAML file with headers, credential, oauth, env and program, as in the admin API')
    .option('--oauth', 'use logins, see glovebox upstreams login')
    .addOption(
      new Option(
        '--credential-mode <mode>',
        'whether keys use the credential of the organization or their own',
      ).choices(credentialModes),
    )

/** Reads files before the command becomes the user of the API server, which may not be able to read them. */
function toSettings(options: UpstreamOptions): UpstreamSettings {
  const { displayName, description, tag, timeout, bearerFile, secretsFile, url, enable, disable } = options
  const { oauth, credentialMode, transport } = options
  const program = toProgram(options)
  const secrets = secretsFile === undefined ? {} : asMap(readFileText(secretsFile, readText(secretsFile)), secretsFile)
  const fromFile = secrets as Pick<UpstreamSettings, 'headers' | 'credential' | 'oauth' | 'env' | 'program'>
  const bearer = bearerFile === undefined ? undefined : readText(bearerFile).trim()
  return {
    ...(displayName !== undefined && { display_name: displayName }),
    ...(description !== undefined && { description }),
    ...(tag !== undefined && { capability_tags: tag }),
    ...(timeout !== undefined && { timeout_ms: Math.round(Number(timeout) * 1_000) }),
    ...(url !== undefined && { url }),
    ...((enable ?? disable) !== undefined && { enabled: enable === true }),
    ...(transport !== undefined && { transport }),
    ...(oauth && { oauth: {} }),
    ...(credentialMode !== undefined && { credential_mode: credentialMode }),
    ...fromFile,
    ...((program ?? fromFile.program) && { program: { ...fromFile.program, ...program } }),
    ...(bearer !== undefined && {
      credential: { in: 'header', name: 'Authorization', prefix: 'Bearer ', values: bearer === '' ? [] : [bearer] },
    }),
  }
}

/** Returns what the options say about a program; `undefined` for nothing. */
function toProgram({ network, allow, image, sharing }: UpstreamOptions): UpstreamSettings['program'] {
  if ([network, allow, image, sharing].every((value) => value === undefined)) return undefined
  return {
    ...((network ?? allow) !== undefined && { network: { policy: network ?? 'allow', rules: allow ?? [] } }),
    ...(image !== undefined && { image }),
    ...(sharing !== undefined && { sharing }),
  }
}

/** Adds the address or the command of a new upstream. */
function withPlace(settings: UpstreamSettings, words: readonly string[]): UpstreamSettings {
  const [first = '', ...args] = words
  const isAddress = settings.transport !== 'stdio' && words.length === 1 && /^https?:/i.test(first)
  if (isAddress || (settings.transport !== undefined && settings.transport !== 'stdio')) {
    return { ...settings, url: first }
  }
  return { ...settings, program: { ...settings.program, command: first, args } }
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new StartRefused(`Cannot read ${file}: ${(error as Error).message}.`, 'Check the path of the file.')
  }
}

const columns: Columns<UpstreamView> = {
  NAME: ({ name }) => name,
  URL: ({ url, program }) => (program ? [program.command, ...program.args].join(' ').slice(0, 60) : url),
  TOOLS: ({ tools }) => (tools === null ? '-' : String(tools)),
  CHANGED: (upstream) => String(upstream.changed_tools.length),
  CREDENTIAL: ({ credential, oauth }) => credential?.hints.join(' ') || (oauth ? 'login' : '-'),
  STATE: ({ enabled }) => (enabled ? 'enabled' : 'disabled'),
}

async function list(session: AdminSession, options: { org: string; json?: boolean }) {
  const { id } = await session.orgNamed(options.org)
  const upstreams = await everyItem((cursor) => listUpstreams(session, operator, id, { cursor }))
  printItems(upstreams, columns, options, session.io)
  return undefined
}

async function create(session: AdminSession, name: string, settings: UpstreamSettings, options: { org: string }) {
  session.printResult(await registered(session, await refOf(session, name, options), settings), '')
  return undefined
}

/** Registers a server and reads its tools. One that cannot be reached yet is worth a message, not an error. */
async function registered(session: AdminSession, ref: UpstreamRef, settings: UpstreamSettings): Promise<UpstreamView> {
  const created = await createUpstream(session, operator, ref, settings)
  try {
    const view = await followed(session, ref, refreshUpstream(session, operator, ref))
    session.notify(`Registered ${ref.name} with ${view.tools} tools.`)
    warnOf(session, view)
    return view
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    session.notify(`Registered ${ref.name}, but its tools could not be read: ${error.message}`)
    return created
  }
}

function warnOf(session: AdminSession, { suspicious_tools: suspicious }: UpstreamView): void {
  if (suspicious.length === 0) return
  session.notify(`Warning: the description of ${suspicious.join(', ')} reads like instructions to a model.`)
}

async function update(session: AdminSession, name: string, settings: UpstreamSettings, options: { org: string }) {
  session.printResult(await updateUpstream(session, operator, await refOf(session, name, options), settings), '')
  return undefined
}

async function importAll(session: AdminSession, content: object, { org, vendor }: { org: string; vendor: string }) {
  const { servers, skipped } = importServers(content, vendor)
  const views: UpstreamView[] = []
  for (const { name, ...settings } of servers) {
    try {
      views.push(await registered(session, await refOf(session, name, { org }), settings))
    } catch (error) {
      if (!(error instanceof Refusal) || servers.length === 1) throw error
      skipped.push({ name, reason: error.message.replace(/\.$/, '') })
    }
  }
  for (const { name, reason } of skipped) session.notify(`Skipped ${name}: ${reason}.`)
  session.printResult({ registered: views, skipped }, '')
  return views.length > 0 ? undefined : usageError('no server was registered', session.io)
}

async function show(session: AdminSession, name: string, options: { org: string }) {
  printJson(await getUpstreamDetails(session, operator, await refOf(session, name, options)), session.io)
  return undefined
}

async function test(session: AdminSession, name: string, options: { org: string }) {
  const ref = await refOf(session, name, options)
  printJson(await followed(session, ref, testUpstream(session, operator, ref)), session.io)
  return undefined
}

async function refresh(session: AdminSession, name: string, options: { org: string }) {
  const ref = await refOf(session, name, options)
  const view = await followed(session, ref, refreshUpstream(session, operator, ref))
  session.notify(`${name} has ${view.tools} approved tools.`)
  if (view.changed_tools.length > 0) session.notify(`Suspended until approved: ${view.changed_tools.join(', ')}.`)
  warnOf(session, view)
  session.printResult(view, '')
  return undefined
}

async function changes(session: AdminSession, name: string, options: { org: string }) {
  printJson(await changesOfUpstream(session, operator, await refOf(session, name, options)), session.io)
  return undefined
}

async function approve(session: AdminSession, name: string, options: { org: string }) {
  session.printResult(await approveUpstream(session, operator, await refOf(session, name, options)), '')
  return undefined
}

async function remove(session: AdminSession, name: string, options: { org: string }) {
  await removeUpstream(session, operator, await refOf(session, name, options))
  session.printResult({ name, state: 'removed' }, '')
  return undefined
}
