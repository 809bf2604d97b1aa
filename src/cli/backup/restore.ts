import { execFile } from 'node:child_process'
import { chmod, chown, copyFile, mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { makeDirectoryDurably } from '../../base/durable-directory.ts'
import { StartRefused } from '../../base/errors.ts'
import { problemOfDatabase } from '../../store/sqlite-backup.ts'
import { databaseName, describeFile, type Manifest, masterKeyName, readManifest, storageName } from './manifest.ts'

const execute = promisify(execFile)

/** Does `work` with the directory of a backup, which is unpacked first if it is a file. */
export async function withBackup<Result>(
  source: string,
  work: (directory: string) => Promise<Result>,
): Promise<Result> {
  const path = resolve(source)
  const found = await stat(path).catch(() => undefined)
  if (found === undefined) throw new StartRefused(`${path} does not exist.`, 'Name a backup.')
  if (found.isDirectory()) return work(path)
  const directory = await mkdtemp(join(dirname(path), '.glovebox-restore-'))
  try {
    await execute('tar', ['--extract', '--sparse', '--no-same-owner', '--file', path, '--directory', directory]).catch(
      (error: Error) => {
        throw new StartRefused(`${path} cannot be unpacked: ${error.message}.`, 'Name a backup.')
      },
    )
    return await work(directory)
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

/** Returns what is wrong with a backup: one sentence for each problem, none if it is whole. */
export async function problemsOf(directory: string, manifest: Manifest): Promise<string[]> {
  const problems: string[] = []
  for (const { path, sizeBytes, sha256 } of manifest.files) {
    const found = await describeFile(directory, path).catch(() => undefined)
    if (found === undefined) problems.push(`${path} is missing`)
    else if (found.sizeBytes !== sizeBytes || found.sha256 !== sha256) problems.push(`${path} was changed`)
    else if (path === databaseName) problems.push(...databaseProblems(join(directory, path)))
    else if (path.endsWith('.ext4')) problems.push(...(await imageProblems(join(directory, path), path)))
  }
  return problems
}

function databaseProblems(path: string): string[] {
  const problem = problemOfDatabase(path)
  return problem === undefined ? [] : [`${databaseName} is damaged: ${problem}`]
}

/** A frozen filesystem has an empty journal, so a check that changes nothing finds every inconsistency. */
async function imageProblems(path: string, name: string): Promise<string[]> {
  try {
    await execute('e2fsck', ['-f', '-n', path], { env: { PATH: '/usr/sbin:/sbin:/usr/bin:/bin', LC_ALL: 'C' } })
    return []
  } catch (error) {
    const { code, stdout = '' } = error as Error & { code?: number | string; stdout?: string }
    return [`${name} is damaged (e2fsck ${code}): ${stdout.trim().split('\n').at(-1) ?? ''}`]
  }
}

export interface RestoreRequest {
  /** Directory of the backup. */
  directory: string
  manifest: Manifest
  /** A home directory that is missing or empty. */
  home: string
  frontUid: number
  frontGid: number
}

/**
 * Restores a backup to a home directory. The instance keeps its ID, so that two servers with it must not run on one
 * machine at the same time.
 * @throws StartRefused if the home directory is not empty, or the backup is damaged.
 */
export async function restoreBackup(request: RestoreRequest): Promise<void> {
  const { directory, manifest, home, frontUid, frontGid } = request
  if ((await readdir(home).catch(() => [])).length > 0) {
    throw new StartRefused(`${home} is not empty.`, 'Restore to a new directory, and start the server with --home.')
  }
  const [problem] = await problemsOf(directory, manifest)
  if (problem !== undefined) throw new StartRefused(`The backup is damaged: ${problem}.`, 'Use another backup.')
  makeDirectoryDurably(home, 0o711)
  const front = join(home, 'front')
  await mkdir(front, { mode: 0o700 })
  await chown(front, frontUid, frontGid)
  for (const { path } of manifest.files) {
    const isOfFront = !path.startsWith(`${storageName}/`)
    const target = isOfFront ? join(front, path) : join(home, path)
    await mkdir(dirname(target), { recursive: true, mode: 0o700 })
    if (isOfFront) {
      await copyFile(join(directory, path), target)
      await chmod(target, 0o600)
      await chown(target, frontUid, frontGid)
    } else await execute('cp', ['--sparse=always', '--reflink=auto', '--', join(directory, path), target])
  }
  await writeFile(join(home, 'instance'), `${manifest.instance}\n`, { mode: 0o644, flush: true })
  await execute('sync', ['--file-system', home])
}

/** What an operator has to do after a restore. */
export const afterRestore = ({ hasMasterKey }: Manifest): string =>
  hasMasterKey
    ? 'The master key was restored as well.'
    : `The backup has no master key: place ${masterKeyName} in the directory "front" of the home directory, or name it with --master-key-file.`

export { readManifest }
