import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { cp, mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)
const root = join(import.meta.dirname, '../..')
const cache = join(root, 'build/foreign')

/** What the build of a package needs besides sources, if it was built from the same sources. */
const reused = ['guest', 'guest.stamp', 'kernel.node', 'kernel.stamp', 'python-zygote.so']

/**
 * Builds the Debian package of the previous commit, with the dependencies of this one.
 * @returns its path, or `undefined` where the history is not known.
 */
export async function previousPackage(): Promise<string | undefined> {
  const commit = await execute('git', ['rev-parse', 'HEAD^'], { cwd: root }).then(
    ({ stdout }) => stdout.trim(),
    () => undefined,
  )
  if (commit === undefined) return undefined
  const directory = join(cache, `previous-${commit}`)
  if (!existsSync(directory)) {
    await mkdir(cache, { recursive: true })
    for (const old of await readdir(cache)) {
      if (old.startsWith('previous-')) await rm(join(cache, old), { recursive: true })
    }
    const unfinished = await mkdtemp(join(cache, 'unfinished-'))
    await execute('sh', ['-c', 'git archive "$1" | tar -x -C "$2"', 'sh', commit, unfinished], { cwd: root })
    await execute('cp', ['-al', join(root, 'node_modules'), join(unfinished, 'node_modules')])
    await mkdir(join(unfinished, 'build'))
    for (const name of await readdir(join(root, 'build'))) {
      if (reused.includes(name)) await cp(join(root, 'build', name), join(unfinished, 'build', name))
    }
    await execute('sh', ['setup/run.sh', 'deb'], { cwd: unfinished })
    await rename(unfinished, directory)
  }
  const [file] = (await readdir(join(directory, 'build'))).filter((name) => name.endsWith('.deb'))
  return file && join(directory, 'build', file)
}
