import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Images below a directory that are attached to a loop device, in any mount namespace. */
export function loopDevicesOf(directory: string): string[] {
  return readdirSync('/sys/block')
    .filter((name) => name.startsWith('loop'))
    .map((name) => backingFileOf(name))
    .filter((file) => file.startsWith(`${directory}/`))
}

function backingFileOf(loop: string): string {
  try {
    return readFileSync(join('/sys/block', loop, 'loop/backing_file'), 'utf8').trim()
  } catch {
    return '' // It has none, or has just lost it.
  }
}
