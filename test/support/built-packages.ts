import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'

const root = join(import.meta.dirname, '../..')

/** How long building a package may take on a busy machine, in ms. */
export const buildWithinMs = 300_000

/** Builds a package, unless it is up to date. @returns the path of its file. */
export async function builtPackage(kind: 'package' | 'deb'): Promise<string> {
  const { stdout } = await promisify(execFile)('sh', [join(root, 'setup/run.sh'), kind])
  return stdout.trim()
}
