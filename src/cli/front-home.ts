import { chmodSync, chownSync } from 'node:fs'
import { makeDirectoryDurably } from '../base/durable-directory.ts'
import type { Instance } from '../base/instance.ts'
import type { Config } from '../config.ts'

/** Creates the front's part of the home directory, accessible to the front's user only. Needs root. */
export function prepareFrontHome(
  { frontUid, frontGid }: Pick<Config, 'frontUid' | 'frontGid'>,
  { frontHome }: Instance,
): void {
  makeDirectoryDurably(frontHome, 0o700)
  chmodSync(frontHome, 0o700)
  chownSync(frontHome, frontUid, frontGid)
}
