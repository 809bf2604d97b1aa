/** The package cache: one copy of the packages of an index, for all runs and sandboxes of a server. */
import { type JailNetwork, parseRule } from './network.ts'

/** The name under which jails reach it, on port 80. No name server receives it. */
export const packageCacheHost = 'packages.glovebox.internal'

export const cachedManagers = ['pip', 'npm', 'apt'] as const
export type CachedManager = (typeof cachedManagers)[number]

/** What became of a request: passed on as a document, answered from the disk, downloaded, not available, or failed. */
export const packageOutcomes = ['document', 'kept', 'downloaded', 'absent', 'failed'] as const
export type PackageOutcome = (typeof packageOutcomes)[number]

/** Of one package manager, since the broker started. */
export interface PackageTotals {
  requests: Partial<Record<PackageOutcome, number>>
  /** To programs. */
  servedBytes: number
  /** From the index. */
  fetchedBytes: number
}

/** What the package cache contains, and what it did since the broker started. */
export interface PackageCacheTotals {
  files: number
  /** Of all files, and what they may have. */
  usedBytes: number
  sizeBytes: number
  /** Files that were removed to make room. */
  evicted: number
  managers: Partial<Record<CachedManager, PackageTotals>>
}

/** What the broker needs for it. */
export interface PackageCacheSettings {
  /** Addresses of the indexes, with the credentials that they require. BOUNDARY: never logged, and never in an answer. */
  upstreams: Partial<Record<CachedManager, string>>
  /** Hosts, addresses and networks that files of the indexes may be at although they are not public. */
  allow: readonly string[]
  /** Belongs to the user of the broker. */
  directory: string
  sizeBytes: number
  /** Free space of the disk that it leaves. */
  reserveBytes: number
}

/** Whether a policy lets programs reach the cache. One that lists its own indexes must list the cache too. */
export function reachesPackageCache({ policy, rules }: Pick<JailNetwork, 'policy' | 'rules'>): boolean {
  if (policy === 'public' || (policy === 'packages' && rules.length === 0)) return true
  return rules.map(parseRule).some((rule) => {
    if (rule === undefined || (rule.port !== undefined && rule.port !== 'any' && rule.port !== 80)) return false
    const { target } = rule
    if (target.kind === 'network') return false
    return target.kind === 'name' ? target.name === packageCacheHost : packageCacheHost.endsWith(target.suffix)
  })
}

/** Returns what is wrong with the address of an index, or `undefined`. */
export function indexAddressProblem(address: string): string | undefined {
  if (!URL.canParse(address)) return 'is no address'
  const { protocol, search, hash } = new URL(address)
  if (protocol !== 'https:' && protocol !== 'http:') return 'is neither https nor http'
  return search === '' && hash === '' ? undefined : 'has a query or fragment'
}
