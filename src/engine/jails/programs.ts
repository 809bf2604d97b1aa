import { access, constants } from 'node:fs/promises'
import { join } from 'node:path'

/** Where programs of the host are looked for; the environment of whoever started us has no say. */
export const systemPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** The path of a program of this machine. @returns undefined when there is none. */
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
