import type { PackageCache } from './packages/package-cache.ts'
import type { Resolver } from './resolver.ts'

/** What every jail of a broker shares. */
export interface Surroundings {
  resolver: Resolver
  /** Whether an address belongs to this machine. */
  isOwn(address: string): boolean
  /** Authorities whose certificates of servers are accepted, in PEM. */
  roots: readonly string[]
  /** Present if the operator configured one. */
  packages?: Promise<PackageCache>
}
