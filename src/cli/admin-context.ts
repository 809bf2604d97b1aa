/**
 * What all commands of administration share. They open the database beside whoever serves from it, so they work whether
 * or not a server runs; one that runs sees what they did with its next request, or within a second.
 */
import { Refusal, StartRefused } from '../base/errors.ts'
import { type Instance, openInstance } from '../base/instance.ts'
import { type Config, readProfile } from '../config.ts'
import { masterKeySource, openVault } from '../core/access/master-key.ts'
import { Profiles } from '../core/access/profiles.ts'
import type { Administered } from '../core/admin/admin.ts'
import { databasePath, openStore } from '../store/sqlite.ts'
import type { OrgRow, Store } from '../store/store.ts'
import { prepareFrontHome } from './front-home.ts'
import { exitCodes, type Io } from './process-io.ts'

/** Opens the database as the front would, and closes it again. A refusal is printed and is the exit code 2. */
export async function withStore(
  config: Config,
  io: Io,
  work: (store: Store, instance: Instance) => Promise<number>,
): Promise<number> {
  const instance = openInstance(config.home, config.stateDir)
  becomeFront(config, () => prepareFrontHome(config, instance))
  const store = await openStore(databasePath(instance.frontHome))
  try {
    return await work(store, instance)
  } catch (error) {
    if (error instanceof Refusal) return explain(error.message, io)
    throw error
  } finally {
    await store.close()
  }
}

/** The same with all that verbs of administration need. */
export function withAdministered(config: Config, io: Io, work: (on: Administered) => Promise<number>): Promise<number> {
  return withStore(config, io, async (store, instance) => {
    const vault = await openVault(store, masterKeySource(config, instance.frontHome))
    const profiles = new Profiles(store, vault, Object.values(config.profiles), (name, written) =>
      readProfile(config.values, name, written),
    )
    return work({ store, vault, profiles, region: config.region })
  })
}

/** @throws Refusal not_found. */
export async function orgNamed({ orgs }: Store, name: string): Promise<OrgRow> {
  const org = (await orgs.list()).find((one) => one.name === name)
  if (org === undefined) throw new Refusal('not_found', { what: `The org ${name}` })
  return org
}

/** Every item of a list that is read page by page. */
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

export const printJson = (value: unknown, io: Io): void => void io.stdout.write(`${JSON.stringify(value, null, 2)}\n`)

export function explain(problem: string, io: Io): number {
  io.stderr.write(`glovebox: ${problem}\n`)
  return exitCodes.usage
}

/**
 * BOUNDARY: the directory of the database belongs to the process that reads the internet, so nothing in it is opened
 * as root; and what is made in it must belong to that process.
 */
function becomeFront({ frontUid, frontGid }: Config, prepare: () => void): void {
  const uid = process.getuid?.()
  if (uid === frontUid) return
  if (uid !== 0) {
    const remedy = `Start it with sudo, or as the front's user (id ${frontUid}).`
    throw new StartRefused('Keys and all that is administered are managed by root.', remedy)
  }
  prepare()
  process.setgroups?.([])
  process.setgid?.(frontGid)
  process.setuid?.(frontUid)
}
