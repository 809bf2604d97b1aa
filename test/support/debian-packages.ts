import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)
const cache = join(import.meta.dirname, '../../build/foreign')

/**
 * Unpacks a package of Debian, without installing it or starting its services.
 * @returns its directory, or `undefined` where the package cannot be had.
 */
export async function unpackDebian(name: string): Promise<string | undefined> {
  const directory = join(cache, `debian-${name}`)
  if (existsSync(directory)) return directory
  await mkdir(cache, { recursive: true })
  const unfinished = await mkdtemp(join(cache, 'unfinished-'))
  try {
    await execute('apt-get', ['download', '-qq', name], { cwd: unfinished })
    const [archive] = (await readdir(unfinished)).filter((file) => file.endsWith('.deb'))
    await execute('dpkg-deb', ['-x', archive!, join(unfinished, 'root')], { cwd: unfinished })
    await rename(join(unfinished, 'root'), directory)
    return directory
  } catch {
    return undefined
  } finally {
    await rm(unfinished, { recursive: true, force: true })
  }
}
