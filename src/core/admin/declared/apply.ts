import { Refusal } from '../../../base/errors.ts'
import { type Admin, type AdminContext, requireInstance } from '../admin.ts'
import { createOrg } from '../orgs.ts'
import { readUnlessInstalling } from '../upstream-installations.ts'
import { refreshUpstream, type UpstreamRef } from '../upstreams.ts'
import {
  type Applied,
  countDeclared,
  type Declaration,
  type DeclaredOrg,
  declaredMax,
  problemText,
} from './declaration.ts'
import { applyKeys, pruneKeys } from './keys.ts'
import { OrgWork, type Work } from './org-work.ts'
import {
  applyHiddenTools,
  applyLimits,
  applyProfiles,
  applySecrets,
  applyVolumes,
  pruneProfiles,
  pruneSecrets,
  pruneVolumes,
} from './settings.ts'
import { applyUpstreams, pruneUpstreams } from './upstreams.ts'

export interface ApplyOptions {
  /** Deletes what the sections of the declaration do not contain. Organizations and threads are never deleted. */
  prune: boolean
  /** Determines the changes without making them. */
  dryRun: boolean
  /** Names of all tools. */
  knownTools: readonly string[]
  /** Waits for the tools of an upstream and reports progress; absent to install programs in the background. */
  follow?: <Result>(ref: UpstreamRef, work: Promise<Result>) => Promise<Result>
}

/** Ends the transaction of a dry run. */
class RolledBack extends Error {}

/** Number of upstreams whose tools are read at the same time. */
const readAtOnce = 8

/**
 * Brings organizations into the declared state: everything in one transaction, or nothing. What is already as declared is
 * not written, so applying a declaration again changes nothing.
 * @throws Refusal declaration_invalid with all mistakes; forbidden.
 */
export async function applyDeclaration(
  on: AdminContext,
  admin: Admin,
  { orgs }: Declaration,
  options: ApplyOptions,
): Promise<Applied> {
  if (admin.orgId === null) requireInstance(admin, 'admin')
  const { runner: _runner, ...withoutRunner } = on
  const count = countDeclared({ orgs })
  if (count > declaredMax)
    throw new Refusal('invalid_argument', {
      field: 'orgs',
      problem: `contains ${count} things; apply at most ${declaredMax} at once`,
    })
  const work: Work = { changes: [], keys: [], problems: [], toRead: [], deletions: 0 }
  try {
    await on.store.together(async (store) => {
      // No runner: what it does cannot be rolled back. The server deletes and grows the files of volumes later.
      const within = { ...withoutRunner, store, profiles: on.profiles.within(store) }
      for (const [name, declared] of Object.entries(orgs)) {
        const org = new OrgWork(within, admin, name, work, options.knownTools)
        await org.attempt([], () => enter(org))
        if (org.id !== '') await applyOrg(org, declared, options.prune)
      }
      const problems = work.problems.map(problemText)
      if (problems.length > 0) throw new Refusal('declaration_invalid', { count: problems.length, problems })
      if (options.dryRun) throw new RolledBack()
    })
  } catch (error) {
    if (!(error instanceof RolledBack)) throw error
    return { changes: work.changes, keys: [], warnings: [] }
  }
  return { changes: work.changes, keys: work.keys, warnings: await readTools(on, admin, work.toRead, options.follow) }
}

/** Finds or creates the organization. An administrator of one organization sees no other one. */
async function enter(org: OrgWork): Promise<void> {
  const { on, admin, name } = org
  const known = (await on.store.orgs.list()).find((one) => one.name === name)
  if (known !== undefined && (admin.orgId === null || admin.orgId === known.id)) {
    org.id = known.id
    return
  }
  org.id = (await createOrg(on, admin, name)).id
  org.record('create', 'organization', name)
}

/** What others refer to is created first and deleted last: profiles mount volumes, and keys use profiles. */
async function applyOrg(org: OrgWork, declared: DeclaredOrg, prune: boolean): Promise<void> {
  const { limits, secrets, volumes, profiles, upstreams, keys, hidden_tools: hiddenTools } = declared
  if (limits) await org.attempt(['limits'], () => applyLimits(org, limits))
  if (secrets) await applySecrets(org, secrets)
  if (volumes) await applyVolumes(org, volumes)
  if (profiles) await applyProfiles(org, profiles)
  if (upstreams) await applyUpstreams(org, upstreams)
  if (hiddenTools) await applyHiddenTools(org, hiddenTools)
  if (keys) await applyKeys(org, keys)
  if (!prune) return
  if (keys) await pruneKeys(org, keys)
  if (profiles) await pruneProfiles(org, profiles)
  if (volumes) await pruneVolumes(org, volumes)
  if (upstreams) await pruneUpstreams(org, upstreams)
  if (secrets) await pruneSecrets(org, secrets)
}

/**
 * Reads the tools of new and changed upstreams.
 * @returns a sentence for each that does not answer, or whose program is installed in the background.
 */
async function readTools(
  on: AdminContext,
  admin: Admin,
  refs: readonly UpstreamRef[],
  follow: ApplyOptions['follow'],
): Promise<string[]> {
  const warnings: string[] = []
  const waiting = [...refs]
  const readOne = async (ref: UpstreamRef) => {
    const refresh = () => refreshUpstream(on, admin, ref)
    const outcome = follow
      ? { result: await follow(ref, refresh()) }
      : await readUnlessInstalling(on, admin, ref, refresh)
    if ('installing' in outcome) {
      warnings.push(`${ref.name}: its program is being installed; its tools are read afterwards.`)
      return
    }
    const { changed_tools: changed } = outcome.result
    if (changed.length > 0) warnings.push(`${ref.name}: suspended until approved: ${changed.join(', ')}.`)
  }
  const read = async () => {
    for (let ref = waiting.shift(); ref !== undefined; ref = waiting.shift()) {
      try {
        await readOne(ref)
      } catch (error) {
        if (!(error instanceof Refusal)) throw error
        warnings.push(`${ref.name}: its tools could not be read: ${error.message}`)
      }
    }
  }
  await Promise.all(Array.from({ length: readAtOnce }, read))
  return warnings.sort()
}
