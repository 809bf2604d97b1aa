import { chownSync, lstatSync, mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { PackageCacheSettings } from '../base/package-cache.ts'
import type { Config } from '../config.ts'

/**
 * Makes the directory of the package cache, which only the user of the broker can enter. One that belonged to another user is
 * removed with its content: packages are downloaded again.
 * @returns what the broker needs for it; undefined when none is configured.
 */
export function preparePackageCache(config: Config): PackageCacheSettings | undefined {
  const { packageCache: upstreams, packageCacheSizeBytes: sizeBytes, storageReserveBytes } = config
  if (Object.keys(upstreams).length === 0) return undefined
  const directory = join(config.home, 'package-cache')
  const found = lstatSync(directory, { throwIfNoEntry: false })
  if (found !== undefined && (!found.isDirectory() || found.uid !== config.egressUid))
    rmSync(directory, { recursive: true })
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  chownSync(directory, config.egressUid, config.egressUid)
  // Below twice the reserve, runs that write wait for the disk.
  return { upstreams, allow: config.outboundAllow, directory, sizeBytes, reserveBytes: 2 * storageReserveBytes }
}
