/** The commands of orgs, their profiles, limits and usage. */
import { readFileSync } from 'node:fs'
import type { Config } from '../config.ts'
import { asMap, readFileText } from '../config-sources.ts'
import type { UsageLimits } from '../core/access/usage-limiter.ts'
import { operator } from '../core/admin/admin.ts'
import { historySettingsOf, setHistorySettings } from '../core/admin/history.ts'
import { limitsOf, setLimits, usageOf } from '../core/admin/limits.ts'
import { createOrg, renameOrg } from '../core/admin/orgs.ts'
import { createProfile, getProfile, listProfiles, removeProfile, replaceProfile } from '../core/admin/profiles.ts'
import { rotateWebhookSecret, webhookSecretOf } from '../core/admin/webhooks.ts'
import { everyItem, explain, orgNamed, printJson, withAdministered } from './admin-context.ts'
import { exitCodes, type Io } from './process-io.ts'
import { printTable } from './table.ts'

export function orgsList(config: Config, io: Io): Promise<number> {
  return withAdministered(config, io, async ({ store }) => {
    const rows = (await store.orgs.list()).map(({ id, name, createdAt }) => [id, name, createdAt])
    printTable([['ID', 'NAME', 'CREATED'], ...rows], io)
    return exitCodes.ok
  })
}

export function orgsCreate(config: Config, name: string, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    io.stdout.write(`${(await createOrg(on, operator, name)).id}\n`)
    return exitCodes.ok
  })
}

export function orgsRename(config: Config, name: string, to: string, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    await renameOrg(on, operator, (await orgNamed(on.store, name)).id, to)
    return exitCodes.ok
  })
}

export function profilesList(config: Config, orgName: string, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const { id } = await orgNamed(on.store, orgName)
    const stored = await everyItem((cursor) => listProfiles(on, operator, id, { cursor }))
    const rows = [
      ...on.profiles.configured.map(({ name }) => [name, 'configuration', '-']),
      ...stored.map(({ name, updated_at: updatedAt }) => [name, orgName, updatedAt]),
    ]
    printTable([['NAME', 'OF', 'CHANGED'], ...rows], io)
    return exitCodes.ok
  })
}

/** Makes a profile of an org, or writes it anew. @param file YAML, as under a name in `profiles:`. */
export function profilesSet(config: Config, name: string, file: string, orgName: string, io: Io): Promise<number> {
  const settings = asMap(readFileText(file, readFileSync(file, 'utf8')), `The file ${file}`)
  return withAdministered(config, io, async (on) => {
    const { id: orgId } = await orgNamed(on.store, orgName)
    const known = await on.store.storedProfiles.get(orgId, name)
    if (known) await replaceProfile(on, operator, { orgId, name }, settings)
    else await createProfile(on, operator, orgId, { name, settings })
    return exitCodes.ok
  })
}

export function profilesShow(config: Config, name: string, orgName: string, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    printJson(await getProfile(on, operator, (await orgNamed(on.store, orgName)).id, name), io)
    return exitCodes.ok
  })
}

export function profilesRemove(config: Config, name: string, orgName: string, io: Io): Promise<number> {
  return withAdministered(config, io, async (on) => {
    await removeProfile(on, operator, (await orgNamed(on.store, orgName)).id, name)
    return exitCodes.ok
  })
}

/** Flags of limits; `none` takes a limit away, and what is absent stays. */
export type LimitFlags = { [Name in keyof UsageLimits]?: string }

/** Prints the limits of an org or key; sets those that flags name first. */
export function limits(
  config: Config,
  { org: orgName, key: keyId, ...flags }: LimitFlags & { org: string; key?: string },
  io: Io,
): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const owner = { orgId: (await orgNamed(on.store, orgName)).id, ...(keyId !== undefined && { keyId }) }
    const amounts = await limitsOf(on, operator, owner)
    const named = Object.entries(flags) as [keyof UsageLimits, string][]
    for (const [name, value] of named) {
      if (value === 'none') delete amounts[name]
      else amounts[name] = Number(value)
    }
    if (named.length > 0) await setLimits(on, operator, owner, amounts)
    printJson(amounts, io)
    return exitCodes.ok
  })
}

/** Prints what is kept of the runs of an org; changes what flags name first. */
export function history(
  config: Config,
  { org, keepCode, keepOutput }: { org: string; keepCode?: string; keepOutput?: string },
  io: Io,
): Promise<number> {
  const odd = [keepCode, keepOutput].find((word) => word !== undefined && word !== 'yes' && word !== 'no')
  if (odd !== undefined) return Promise.resolve(explain(`Say yes or no, not ${odd}.`, io))
  return withAdministered(config, io, async (on) => {
    const { id } = await orgNamed(on.store, org)
    const changes = {
      ...(keepCode !== undefined && { keep_code: keepCode === 'yes' }),
      ...(keepOutput !== undefined && { keep_output: keepOutput === 'yes' }),
    }
    const isAsked = Object.keys(changes).length > 0
    printJson(await (isAsked ? setHistorySettings(on, operator, id, changes) : historySettingsOf(on, operator, id)), io)
    return exitCodes.ok
  })
}

/** Prints what the webhooks of an org are signed with. @param rotate whether another is made first. */
export function webhookSecret(
  config: Config,
  { org, rotate = false }: { org: string; rotate?: boolean },
  io: Io,
): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const { id } = await orgNamed(on.store, org)
    const secret = await (rotate ? rotateWebhookSecret(on, operator, id) : webhookSecretOf(on, operator, id))
    io.stdout.write(`${secret}\n`)
    return exitCodes.ok
  })
}

/** Prints what the runs of an org used, a line for each day and key. */
export function usage(
  config: Config,
  { org: orgName, from, until }: { org: string; from?: string; until?: string },
  io: Io,
): Promise<number> {
  return withAdministered(config, io, async (on) => {
    const used = await usageOf(on, operator, (await orgNamed(on.store, orgName)).id, { from, until })
    const rows = used.map((row) => [row.day, row.keyId, `${row.runs}`, `${row.runMs / 1_000}`, `${row.cpuMs / 1_000}`])
    printTable([['DAY', 'KEY', 'RUNS', 'RUN SECONDS', 'CPU SECONDS'], ...rows], io)
    return exitCodes.ok
  })
}
