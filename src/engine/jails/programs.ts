import { access, constants } from 'node:fs/promises'
import { join } from 'node:path'

/** Directories in which programs of the host are searched, independent of PATH. */
export const systemPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** Returns the path of a program of this machine; `undefined` if it is not installed. */
export async function findProgram(name: string): Promise<string | undefined> {
  for (const dir of systemPath.split(':')) {
    const path = join(dir, name)
    const runs = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    )
    if (runs) return path
  }
  return undefined
}
