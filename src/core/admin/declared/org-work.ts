import { setImmediate } from 'node:timers/promises'
import { Refusal } from '../../../base/errors.ts'
import type { Admin, ChangeContext } from '../admin.ts'
import type { UpstreamRef } from '../upstreams.ts'
import { type Change, type CreatedKey, type DeclarationProblem, declaredMax } from './declaration.ts'

/** What applying a declaration has found and done so far. */
export interface Work {
  changes: Change[]
  keys: CreatedKey[]
  problems: DeclarationProblem[]
  /** Upstreams whose tools must be read afterwards. */
  toRead: UpstreamRef[]
  deletions: number
}

/** Checks one setting without the others. */
export interface PartCheck {
  field: string
  check: () => unknown
}

/** Applies the declaration of one organization. A mistake does not end it, so that all of them are reported. */
export class OrgWork {
  readonly on: ChangeContext
  readonly admin: Admin
  readonly name: string
  readonly work: Work
  readonly knownTools: readonly string[]
  /** Empty until it exists. */
  id = ''
  /** Names of declared profiles that have mistakes. Keys that use them are not reported as well. */
  readonly wrongProfiles = new Set<string>()

  constructor(on: ChangeContext, admin: Admin, name: string, work: Work, knownTools: readonly string[]) {
    this.on = on
    this.admin = admin
    this.name = name
    this.work = work
    this.knownTools = knownTools
  }

  /**
   * Does one thing, and keeps its refusal as a problem. The transaction is rolled back then.
   * @param path of the thing below the organization. @param checks of its parts: if it is refused, they find all mistakes.
   * @returns whether there was no problem.
   */
  async attempt(path: readonly string[], act: () => unknown, checks: readonly PartCheck[] = []): Promise<boolean> {
    const refusal = await refusalOf(act)
    // The rows are read and written without a pause; other requests are handled in between.
    await setImmediate()
    if (refusal === undefined) return true
    let isFound = false
    for (const { field, check } of checks) {
      const refused = await refusalOf(check)
      if (refused === undefined) continue
      isFound = true
      this.problem(path, refused.details.field ?? field, textOf(refused))
    }
    if (!isFound) this.problem(path, refusal.details.field, textOf(refusal))
    return false
  }

  /** Deletes what is not declared, one after the other; nothing if that is too much for one transaction. */
  async prune<Item>(section: string, items: readonly Item[], remove: (item: Item) => Promise<void>): Promise<void> {
    this.work.deletions += items.length
    if (this.work.deletions > declaredMax) {
      this.problem([section], undefined, `would delete more than ${declaredMax} things at once`)
      return
    }
    for (const item of items) await this.attempt([section], () => remove(item))
  }

  problem(path: readonly string[], field: unknown, problem: string): void {
    const parts = typeof field === 'string' ? field.split('.') : []
    this.work.problems.push({ path: ['orgs', this.name, ...path, ...parts], problem })
  }

  record(action: Change['action'], kind: Change['kind'], name: string, fields: readonly string[] = []): void {
    this.work.changes.push({ action, kind, org: this.name, name, fields })
  }
}

/** A refusal for want of a database is no mistake of the declaration. @throws everything that is not such a mistake. */
async function refusalOf(act: () => unknown): Promise<Refusal | undefined> {
  try {
    await act()
    return undefined
  } catch (error) {
    if (error instanceof Refusal && error.row.http < 500) return error
    throw error
  }
}

const textOf = ({ code, details, message }: Refusal): string =>
  code === 'invalid_argument' && typeof details.problem === 'string' ? details.problem : message.replace(/\.$/, '')
