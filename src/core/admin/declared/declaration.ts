/** What a declaration contains, and what applying it reports. */
import type { SecretForm } from '../../access/keys.ts'
import type { UsageLimits } from '../../access/usage-limiter.ts'
import type { KeySettings } from '../keys.ts'
import type { SecretSettings } from '../secrets.ts'
import type { UpstreamSettings } from '../upstreams.ts'
import type { VolumeSettings } from '../volumes.ts'

/** The intended state of some organizations. Everything has its name as its key. */
export interface Declaration {
  orgs: Readonly<Record<string, DeclaredOrg>>
}

/**
 * An organization. A section that is absent is not touched. In one that is present, settings that are absent have their
 * defaults.
 */
export interface DeclaredOrg {
  limits?: UsageLimits
  secrets?: Readonly<Record<string, SecretSettings & { value: string }>>
  volumes?: Readonly<Record<string, Omit<VolumeSettings, 'slug'>>>
  profiles?: Readonly<Record<string, Readonly<Record<string, unknown>>>>
  upstreams?: Readonly<Record<string, UpstreamSettings>>
  keys?: Readonly<Record<string, DeclaredKey>>
  /** All tools that the organization does not have. */
  hidden_tools?: readonly string[]
}

/**
 * Maximum number of things in a declaration, and of things that one deletes. Other requests wait for the database while it
 * is applied, which takes about half a millisecond for each.
 */
export const declaredMax = 1_000

/** Number of organizations and of things in their sections. */
export function countDeclared({ orgs }: Declaration): number {
  const sections = Object.values(orgs).flatMap((org) => Object.values(org as Record<string, object>))
  return Object.keys(orgs).length + sections.reduce((sum, section) => sum + Object.keys(section).length, 0)
}

export interface DeclaredKey extends Omit<KeySettings, 'name'> {
  secret_form?: SecretForm
  limits?: UsageLimits
}

export const changeActions = ['create', 'update', 'delete'] as const
export const declaredKinds = [
  ...(['organization', 'limits', 'secret', 'volume', 'profile', 'upstream', 'tool', 'key'] as const),
] as const

/** A difference between the declaration and the database. It contains no values, since some are secrets. */
export interface Change {
  action: (typeof changeActions)[number]
  kind: (typeof declaredKinds)[number]
  /** Name of the organization. */
  org: string
  name: string
  /** Names of the changed settings of an update; empty otherwise. */
  fields: readonly string[]
}

/** A key that was created, with its secret, which is returned only here. */
export interface CreatedKey {
  org: string
  name: string
  id: string
  secret: string
}

export interface Applied {
  changes: readonly Change[]
  /** Empty if nothing was written. */
  keys: readonly CreatedKey[]
  /** What did not work afterwards, such as reading the tools of an upstream that does not answer. */
  warnings: readonly string[]
}

/** A mistake, and where it is: `['orgs', 'acme', 'keys', 'build', 'profile']`. */
export interface DeclarationProblem {
  path: readonly string[]
  problem: string
}

/** Writes a problem as a JSON pointer (RFC 6901, as a URI fragment) and a text. */
export const problemText = ({ path, problem }: DeclarationProblem): string =>
  `#${path.map((part) => `/${encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'))}`).join('')} ${problem}`

/** Reads what `problemText` wrote. */
export function parseProblem(text: string): DeclarationProblem {
  const end = text.indexOf(' ')
  const parts = text.slice(1, end).split('/').slice(1)
  const path = parts.map((part) => decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~'))
  return { path, problem: text.slice(end + 1) }
}
