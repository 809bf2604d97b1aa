import { chmodSync, chownSync, mkdirSync } from 'node:fs'
import type { Instance } from '../base/instance.ts'
import type { Config } from '../config.ts'

/** Creates the front's part of the home directory, accessible to the front's user only. Needs root. */
export function prepareFrontHome({ frontUid, frontGid }: Config, { frontHome }: Instance): void {
  mkdirSync(frontHome, { recursive: true, mode: 0o700 })
  chmodSync(frontHome, 0o700)
  chownSync(frontHome, frontUid, frontGid)
}
