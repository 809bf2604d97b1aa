/**
 * What all administration commands share. They open the database directly, so they work whether or not a server is
 * running; a running server applies a change with its next request, or within a second.
 */
import { statSync } from 'node:fs'
import type { Command } from 'commander'
import { Refusal, StartRefused } from '../../base/errors.ts'
import { InTurn } from '../../base/in-turn.ts'
import { type Instance, openInstance } from '../../base/instance.ts'
import { type Config, readProfile } from '../../config.ts'
import { masterKeySource, openVault } from '../../core/access/master-key.ts'
import { Profiles } from '../../core/access/profiles.ts'
import type { AdminContext } from '../../core/admin/admin.ts'
import type { UpstreamRef } from '../../core/admin/upstreams.ts'
import { RunEndings } from '../../core/runs/run-endings.ts'
import type { UpstreamPrograms } from '../../core/upstreams/programs/programs.ts'
import { inspectUpstream } from '../../gateway/inspect.ts'
import { upstreamOAuth } from '../../gateway/oauth/logins.ts'
import { AllowedDestinations } from '../../outbound/destination.ts'
import { Outbound } from '../../outbound/outbound.ts'
import type { SettingName } from '../../settings.ts'
import { databasePath, openStore } from '../../store/sqlite.ts'
import type { OrgRow, Store } from '../../store/store.ts'
import type { Cli } from '../command.ts'
import { prepareFrontHome } from '../front-home.ts'
import { printJson, withJson } from '../output.ts'
import { exitCodes, type ProcessIo } from '../process-io.ts'
import { readServerRecord } from '../server-record.ts'
import { addSettingOptions, configOf } from '../setting-options.ts'
import { version } from '../version.ts'
import { commandPrograms } from './programs.ts'

/** The settings that these commands need: where the database is, who owns it, and how its secrets are encrypted. */
const settingsOfAdmin: readonly SettingName[] = [
  'home',
  'state_dir',
  'dev',
  'front_uid',
  'front_gid',
  'region',
  'master_key_file',
  'master_key',
  'outbound_allow',
  'public_url',
  'network_allow',
  'package_indexes',
  'upstream_program_memory',
  'upstream_program_disk',
]

/** What an administration command works with. */
export interface AdminSession extends AdminContext {
  io: ProcessIo
  /** Prints what a command did: a sentence or value for people, with `--json` the result itself. */
  printResult(result: unknown, text: string): void
  /** Prints a message for people to standard error; not with `--json`. */
  notify(message: string): void
  /** Finds an organization by name; `default` is the development organization in development mode. */
  orgNamed(name: string): Promise<OrgRow>
  /** What `--org default` means, if it exists. */
  defaultOrg: OrgRow | undefined
}

/** Adds an administration command, with `--json` and the settings that all of them take. */
export const adminCommand = (parent: Command, usage: string, description: string): Command =>
  addSettingOptions(withJson(parent.command(usage).description(description)), settingsOfAdmin)

/** Adds `--org`. */
export const withOrg = (command: Command): Command =>
  command.option('--org <name>', 'organization; in development mode its own is the default', defaultOrgName)

/** Makes the action of an administration command: its work, with the database open, its arguments and its options. */
export const withAdmin =
  <Given extends unknown[]>(
    { io, exit }: Cli,
    work: (session: AdminSession, ...given: Given) => Promise<number | undefined>,
  ) =>
  async (...given: unknown[]): Promise<void> => {
    const command = given.at(-1) as Command
    const config = configOf(command, io)
    const { json = false } = command.opts<{ json?: boolean }>()
    const code = await withStore(config, io, async (store, instance) =>
      withPrograms(config, instance, store, async (programs) => {
        const session = await openSession(config, instance, store, programs, io, json)
        return work(session, ...(given.slice(0, -1) as Given))
      }),
    )
    exit(code ?? exitCodes.ok)
  }

/** Opens the database as the API server would, and closes it again. A refusal is printed and exits with 64, or 69 and 74 where the database is unavailable. */
export async function withStore(
  config: Config,
  io: ProcessIo,
  work: (store: Store, instance: Instance) => Promise<number | undefined>,
): Promise<number | undefined> {
  const instance = openInstance(config.home, config.stateDir)
  const owners = ownersOf(instance) ?? config
  becomeFront(owners, () => prepareFrontHome(owners, instance))
  const store = await openStore(databasePath(instance.frontHome))
  try {
    return await work(store, instance)
  } catch (error) {
    if (error instanceof Refusal && error.row.kind !== 'unavailable') return usageError(error.message, io)
    throw error
  } finally {
    await store.close()
  }
}

async function withPrograms<Result>(
  config: Config,
  instance: Instance,
  store: Store,
  work: (programs: UpstreamPrograms) => Promise<Result>,
): Promise<Result> {
  const { programs, close } = commandPrograms(instance, store, config)
  try {
    return await work(programs)
  } finally {
    await close()
  }
}

async function openSession(
  config: Config,
  instance: Instance,
  store: Store,
  programs: UpstreamPrograms,
  io: ProcessIo,
  isJson: boolean,
): Promise<AdminSession> {
  const vault = await openVault(store, masterKeySource(config, instance.frontHome))
  const profiles = new Profiles(store, vault, Object.values(config.profiles), (name, written) =>
    readProfile(config.values, name, written),
  )
  const outbound = new Outbound(new AllowedDestinations(config.outboundAllow))
  const withAgent = async <Result>(
    work: (agent: ReturnType<Outbound['agent']>) => Promise<Result>,
  ): Promise<Result> => {
    const agent = outbound.agent()
    try {
      return await work(agent)
    } finally {
      await agent.destroy()
    }
  }
  const orgs = await store.orgs.list()
  const defaultOrg = defaultOf(orgs, isDevelopment(config, instance))
  return {
    ...{ store, vault, profiles, region: config.region, io, defaultOrg, outbound, programs },
    printResult(result, text) {
      if (isJson) printJson(result, io)
      else if (text !== '') io.stdout.write(`${text}\n`)
    },
    notify(message) {
      if (!isJson) io.stderr.write(`${message}\n`)
    },
    inspectUpstream: (...given) => withAgent((agent) => inspectUpstream(agent, version, ...given)),
    searches: new InTurn(),
    endings: new RunEndings(),
    upstreamOAuth: {
      begin: (target, method) => withAgent((agent) => upstreamOAuth(agent, config.publicUrl).begin(target, method)),
      complete: (target, pending, redirectedTo) =>
        withAgent((agent) => upstreamOAuth(agent, config.publicUrl).complete(target, pending, redirectedTo)),
    },
    orgNamed: async (name) => {
      const org = name === defaultOrgName ? defaultOrg : orgs.find((one) => one.name === name)
      if (org === undefined) throw new Refusal('not_found', { what: `The organization ${name}` })
      return org
    },
  }
}

export const defaultOrgName = 'default'
/** The organization of callers without a key. */
const developmentOrgId = 'org_dev'

/** In development mode the development organization; otherwise the one named `default`, if there is one. */
function defaultOf(orgs: readonly OrgRow[], isDevelopment: boolean): OrgRow | undefined {
  const development = orgs.find(({ id }) => id === developmentOrgId)
  const named = orgs.find(({ name }) => name === defaultOrgName)
  return isDevelopment ? (development ?? named) : (named ?? development)
}

const isDevelopment = ({ sources, dev }: Config, instance: Instance): boolean =>
  sources.dev === 'default' ? readServerRecord(instance.stateDir)?.isDevelopment === true : dev

/** Returns the upstream that a command names. */
export const refOf = async (session: AdminSession, name: string, { org }: { org: string }): Promise<UpstreamRef> => ({
  orgId: (await session.orgNamed(org)).id,
  name,
})

/** Reads every page of a list. */
export async function everyItem<Item>(
  read: (cursor: string | undefined) => Promise<{ items: Item[]; nextCursor: string | null }>,
): Promise<Item[]> {
  const all: Item[] = []
  for (let cursor: string | undefined; ; ) {
    const { items, nextCursor } = await read(cursor)
    all.push(...items)
    if (nextCursor === null) return all
    cursor = nextCursor
  }
}

/** Prints what is wrong with the arguments. @returns the exit code. */
export function usageError(problem: string, { stderr }: ProcessIo): number {
  stderr.write(`glovebox: ${problem}\n`)
  return exitCodes.usage
}

/**
 * The users of a home that a server has used before: a command that is started without the --front-uid of the server
 * must not change the owner of the files of the server.
 */
function ownersOf({ frontHome }: Instance): Pick<Config, 'frontUid' | 'frontGid'> | undefined {
  const { uid, gid } = statSync(frontHome, { throwIfNoEntry: false }) ?? { uid: 0, gid: 0 }
  return uid === 0 ? undefined : { frontUid: uid, frontGid: gid }
}

/**
 * BOUNDARY: the directory of the database belongs to the process that handles requests, so nothing in it is opened as
 * root, and files created in it must belong to that process.
 */
function becomeFront({ frontUid, frontGid }: Pick<Config, 'frontUid' | 'frontGid'>, prepare: () => void): void {
  const uid = process.getuid?.()
  if (uid === frontUid) return
  if (uid !== 0) {
    const remedy = `Run it with sudo, or as the user of the API server (id ${frontUid}).`
    throw new StartRefused('Administration commands must be run by root.', remedy)
  }
  prepare()
  process.setgroups?.([])
  process.setgid?.(frontGid)
  process.setuid?.(frontUid)
}
