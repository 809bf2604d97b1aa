/**
 * The commands of the operator's keys. They open the database beside whoever serves from it, so they work whether or
 * not a server runs; one that runs sees what they did with its next request.
 */
import { Refusal, StartRefused } from '../base/errors.ts'
import { openInstance } from '../base/instance.ts'
import type { Config } from '../config.ts'
import { createKey, type KeyRequest, listKeys, revokeKey } from '../core/keys.ts'
import { databasePath, openStore } from '../store/sqlite.ts'
import type { Store } from '../store/store.ts'
import { prepareFrontHome } from './front-home.ts'
import { exitCodes, type Io } from './io.ts'

/** Makes a key; its secret alone goes to standard output, this once. */
export async function keysCreate(config: Config, request: KeyRequest, io: Io): Promise<number> {
  if (!Object.hasOwn(config.profiles, request.profile)) {
    const offered = Object.keys(config.profiles).join(', ')
    return explain(`There is no profile ${request.profile}; the configuration has ${offered}.`, io)
  }
  return withStore(config, io, async (store) => {
    const { key, secret } = await createKey(store, config.region, request)
    io.stderr.write(`Key ${key.id} of ${request.org}, with the profile ${key.profile}. It is shown this once:\n`)
    io.stdout.write(`${secret}\n`)
    return exitCodes.ok
  })
}

/** Prints one line for each key. @param org its name; all orgs when absent. */
export function keysList(config: Config, org: string | undefined, io: Io): Promise<number> {
  return withStore(config, io, async (store) => {
    const rows = (await listKeys(store, org)).map(({ key, org: { name } }) => [
      key.id,
      `${key.prefix}…`,
      name,
      key.profile,
      key.name || '-',
      key.createdAt,
      key.revokedAt === null ? 'live' : `revoked ${key.revokedAt}`,
    ])
    const table = [['ID', 'KEY', 'ORG', 'PROFILE', 'NAME', 'CREATED', 'STATE'], ...rows]
    const widths = table[0]!.map((_, column) => Math.max(...table.map((row) => row[column]!.length)))
    for (const row of table) {
      const line = row.map((cell, column) => cell.padEnd(widths[column]!)).join('  ')
      io.stdout.write(`${line.trimEnd()}\n`)
    }
    return exitCodes.ok
  })
}

/** Revokes a key by its id; what it has going ends. */
export function keysRevoke(config: Config, id: string, io: Io): Promise<number> {
  return withStore(config, io, async (store) => {
    switch (await revokeKey(store, id)) {
      case 'revoked':
        io.stdout.write(`${id} is revoked.\n`)
        return exitCodes.ok
      case 'revoked_before':
        io.stdout.write(`${id} was revoked before.\n`)
        return exitCodes.ok
      case 'unknown':
        return explain(`There is no key ${id}; glovebox keys list shows the ids.`, io)
    }
  })
}

/** Opens the database as the front would, and closes it again. */
export async function withStore(config: Config, io: Io, work: (store: Store) => Promise<number>): Promise<number> {
  const instance = openInstance(config.home, config.stateDir)
  becomeFront(config, () => prepareFrontHome(config, instance))
  const store = await openStore(databasePath(instance.frontHome))
  try {
    return await work(store)
  } catch (error) {
    if (error instanceof Refusal) return explain(error.message, io)
    throw error
  } finally {
    await store.close()
  }
}

/**
 * BOUNDARY: the directory of the database belongs to the process that reads the internet, so nothing in it is opened
 * as root; and what is made in it must belong to that process.
 */
function becomeFront({ frontUid, frontGid }: Config, prepare: () => void): void {
  const uid = process.getuid?.()
  if (uid === frontUid) return
  if (uid !== 0) {
    throw new StartRefused('Keys are managed by root.', `Start it with sudo, or as the front's user (id ${frontUid}).`)
  }
  prepare()
  process.setgroups?.([])
  process.setgid?.(frontGid)
  process.setuid?.(frontUid)
}

function explain(problem: string, io: Io): number {
  io.stderr.write(`glovebox keys: ${problem}\n`)
  return exitCodes.usage
}
