/** The commands of admin tokens and of the master key. */
import { InstanceLock } from '../base/instance-lock.ts'
import type { Config } from '../config.ts'
import { masterKeySource, replaceMasterKey } from '../core/access/master-key.ts'
import { operator, type Role, roles } from '../core/admin/admin.ts'
import { createToken, listTokens, revokeToken } from '../core/admin/tokens.ts'
import { everyItem, explain, orgNamed, withAdministered, withStore } from './admin-context.ts'
import { exitCodes, type Io } from './process-io.ts'
import { printTable } from './table.ts'

/** Makes an admin token; its secret alone goes to standard output, this once. */
export function tokensCreate(
  config: Config,
  { name, role, org, expires }: { name: string; role: string; org?: string; expires?: string },
  io: Io,
): Promise<number> {
  const known = roles.find((one) => one === role)
  if (known === undefined) return Promise.resolve(explain(`A role is one of ${roles.join(', ')}.`, io))
  return withAdministered(config, io, async (on) => {
    const settings: { name: string; role: Role } = { name, role: known }
    const token = await createToken(on, operator, {
      ...settings,
      org_id: org === undefined ? null : (await orgNamed(on.store, org)).id,
      expires_at: expires ?? null,
    })
    io.stderr.write(`Token ${token.id} with the role ${role}. It is shown this once:\n`)
    io.stdout.write(`${token.secret}\n`)
    return exitCodes.ok
  })
}

export function tokensList(config: Config, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const tokens = await everyItem((cursor) => listTokens(on, operator, { cursor }))
    const rows = tokens.map((token) => [
      token.id,
      `${token.prefix}…`,
      token.role,
      token.org_id ?? 'all',
      token.name,
      token.created_at,
      token.revoked_at === null ? (token.expires_at ?? 'live') : `revoked ${token.revoked_at}`,
    ])
    printTable([['ID', 'TOKEN', 'ROLE', 'ORG', 'NAME', 'CREATED', 'STATE'], ...rows], io)
    return exitCodes.ok
  })
}

export function tokensRevoke(config: Config, id: string, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    await revokeToken(on, operator, id)
    io.stdout.write(`${id} is revoked.\n`)
    return exitCodes.ok
  })
}

/** Seals everything with a new master key. No server may run meanwhile. */
export async function secretsRotate(config: Config, io: Io): Promise<number> {
  const lock = await InstanceLock.acquire(config.home, 'front', true)
  try {
    return await withStore(config, io, async (store, instance) => {
      await replaceMasterKey(store, masterKeySource(config, instance.frontHome))
      io.stdout.write('Everything is sealed with a new master key. Keep a copy of it apart from the database.\n')
      return exitCodes.ok
    })
  } finally {
    lock.release()
  }
}
