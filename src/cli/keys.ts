/** The commands of the operator's keys. */
import { timestamp } from '../base/clock.ts'
import { newId } from '../base/ids.ts'
import type { Config } from '../config.ts'
import { checkName, operator } from '../core/admin/admin.ts'
import { createKey, type KeySettings, listKeys, revokeKey, rotateKey, updateKey } from '../core/admin/keys.ts'
import type { KeyRow, Store } from '../store/store.ts'
import { everyItem, explain, withAdministered } from './admin-context.ts'
import { exitCodes, type Io } from './process-io.ts'
import { printTable } from './table.ts'
import { toolNames } from './tools.ts'

/** What flags say of a key; those that are absent change nothing. */
export interface KeyFlags {
  name?: string
  profile?: string
  /** ISO 8601, or `never`. */
  expires?: string
  /** `NAME=value`, once for each. */
  env?: readonly string[]
  /** Names with commas, or `all`. */
  tools?: string
}

/** Makes a key; its secret alone goes to standard output, this once. The org is made when it is new. */
export function keysCreate(
  config: Config,
  { org: orgName, ...flags }: KeyFlags & { org: string },
  io: Io,
): Promise<number> {
  return withAdministered(config, io, async (on) => {
    checkName('org', orgName)
    const org = await on.store.orgs.ensureNamed({ id: newId('org'), name: orgName, createdAt: timestamp() })
    const key = await createKey(on, operator, org.id, toSettings(flags), toolNames)
    io.stderr.write(`Key ${key.id} of ${orgName}, with the profile ${key.profile}. It is shown this once:\n`)
    io.stdout.write(`${key.secret}\n`)
    return exitCodes.ok
  })
}

/** Prints one line for each key. @param orgName its name; all orgs when absent. */
export function keysList(config: Config, orgName: string | undefined, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const rows = [['ID', 'KEY', 'ORG', 'PROFILE', 'NAME', 'CREATED', 'STATE']]
    for (const org of await on.store.orgs.list()) {
      if (orgName !== undefined && org.name !== orgName) continue
      for (const key of await everyItem((cursor) => listKeys(on, operator, org.id, { cursor }))) {
        const state = stateOf(key.revoked_at, key.expires_at)
        rows.push([key.id, `${key.prefix}…`, org.name, key.profile, key.name || '-', key.created_at, state])
      }
    }
    printTable(rows, io)
    return exitCodes.ok
  })
}

function stateOf(revokedAt: string | null, expiresAt: string | null): string {
  if (revokedAt !== null) return `revoked ${revokedAt}`
  return expiresAt === null ? 'live' : `live until ${expiresAt}`
}

/** Changes what flags name of a key. */
export function keysUpdate(config: Config, id: string, flags: KeyFlags, io: Io): Promise<number> {
  return withKey(config, id, io, async (on, { orgId }) => {
    await updateKey(on, operator, { orgId, id }, toSettings(flags), toolNames)
    io.stdout.write(`${id} is changed.\n`)
    return exitCodes.ok
  })
}

/** Gives a key another secret, which alone goes to standard output. @param overlapSeconds how long both are good. */
export function keysRotate(config: Config, id: string, overlapSeconds: number, io: Io): Promise<number> {
  return withKey(config, id, io, async (on, { orgId }) => {
    const { secret } = await rotateKey(on, operator, { orgId, id }, overlapSeconds)
    io.stderr.write(`Key ${id} has another secret. It is shown this once:\n`)
    io.stdout.write(`${secret}\n`)
    return exitCodes.ok
  })
}

/** Revokes a key by its id; what it has going ends. */
export function keysRevoke(config: Config, id: string, io: Io): Promise<number> {
  return withKey(config, id, io, async (on, { orgId }) => {
    const revoked = await revokeKey(on, operator, orgId, id)
    io.stdout.write(revoked ? `${id} is revoked.\n` : `${id} was revoked before.\n`)
    return exitCodes.ok
  })
}

type On = Parameters<Parameters<typeof withAdministered>[2]>[0]

function withKey(config: Config, id: string, io: Io, work: (on: On, key: KeyRow) => Promise<number>): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const key = await withSecret(on.store, id)
    return key ? work(on, key) : explain(`There is no key ${id}; glovebox keys list shows the ids.`, io)
  })
}

async function withSecret({ keys }: Store, id: string): Promise<KeyRow | undefined> {
  const key = await keys.get(id)
  return key?.secretHash ? key : undefined
}

const toSettings = ({ name, profile, expires, env = [], tools }: KeyFlags): KeySettings => ({
  ...(name !== undefined && { name }),
  ...(profile !== undefined && { profile }),
  ...(expires !== undefined && { expires_at: expires === 'never' ? null : expires }),
  ...(env.length > 0 && { env_vars: Object.fromEntries(env.map(toPair)) }),
  ...(tools !== undefined && { tools: tools === 'all' ? null : tools.split(',') }),
})

function toPair(text: string): [string, string] {
  const at = text.indexOf('=')
  return at === -1 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)]
}
