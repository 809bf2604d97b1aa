import { execFile } from 'node:child_process'
import { copyFile, mkdir, mkdtemp, open, readdir, rename, rm, stat, writeFile } from 'node:fs/promises'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { promisify } from 'node:util'
import { timestamp } from '../../base/clock.ts'
import { StartRefused } from '../../base/errors.ts'
import type { Instance } from '../../base/instance.ts'
import { copyImage } from '../../storage/copy-image.ts'
import { databasePath } from '../../store/sqlite.ts'
import { backUpDatabase } from '../../store/sqlite-backup.ts'
import { version } from '../version.ts'
import {
  type BackupFile,
  databaseName,
  describeFile,
  type Manifest,
  manifestName,
  masterKeyName,
  storageName,
} from './manifest.ts'

const execute = promisify(execFile)

/** Directories of storage whose content is made anew at the next start. */
const temporary = new Set(['incoming', 'templates'])

export interface BackupRequest {
  home: string
  instance: Instance
  /** A file that ends with .tar, or a directory that is missing or empty. */
  target: string
  /** Path of the master key that is included; absent to leave it out. */
  masterKey?: string
  /** Called for each part that was copied. */
  report(path: string): void
}

/**
 * Writes a backup of an instance, which can be serving. The database is copied first, as of one moment, and then each
 * thread and volume as of one moment. So every run that had succeeded before is included with its files.
 * @throws StartRefused if the target exists, or there is no database.
 */
export async function createBackup(request: BackupRequest): Promise<Manifest> {
  const target = resolve(request.target)
  const isFile = target.endsWith('.tar')
  await refuseExisting(target, isFile)
  await mkdir(dirname(target), { recursive: true })
  // Beside the target, so that the last step is a rename within one filesystem.
  const directory = await mkdtemp(join(dirname(target), `.${basename(target)}-`))
  try {
    const manifest = await fill(directory, request)
    if (isFile) await pack(directory, target)
    else {
      await rm(target, { recursive: true, force: true })
      await rename(directory, target)
    }
    await syncAt(dirname(target))
    return manifest
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

async function refuseExisting(target: string, isFile: boolean): Promise<void> {
  const found = await stat(target).catch(() => undefined)
  if (found === undefined) return
  if (!isFile && found.isDirectory() && (await readdir(target)).length === 0) return
  throw new StartRefused(`${target} exists already.`, 'Name a file or directory that does not exist.')
}

async function fill(directory: string, { home, instance, masterKey, report }: BackupRequest): Promise<Manifest> {
  const database = databasePath(instance.frontHome)
  if ((await stat(database).catch(() => undefined)) === undefined) {
    throw new StartRefused(`There is no database in ${home}.`, 'Name the home directory of a server with --home.')
  }
  const files: string[] = [databaseName]
  await backUpDatabase(database, join(directory, databaseName))
  report(databaseName)
  if (masterKey !== undefined) {
    await copyFile(masterKey, join(directory, masterKeyName))
    files.push(masterKeyName)
  }
  const storage = join(home, 'storage')
  for await (const path of imagesBelow(storage)) {
    const name = join(storageName, relative(storage, path))
    if (!(await copyImage(path, join(directory, name)))) continue
    files.push(name)
    report(name)
  }
  const manifest: Manifest = {
    ...{ format: 1, version, createdAt: timestamp(), instance: instance.id },
    hasMasterKey: masterKey !== undefined,
    files: await describeAll(directory, files),
  }
  await writeFile(join(directory, manifestName), `${JSON.stringify(manifest, null, 2)}\n`, { flush: true })
  return manifest
}

async function describeAll(directory: string, paths: readonly string[]): Promise<BackupFile[]> {
  const described: BackupFile[] = []
  for (const path of paths) described.push(await describeFile(directory, path))
  return described
}

/** Yields the image files below a directory, in the order of their names. */
async function* imagesBelow(directory: string, depth = 0): AsyncGenerator<string, void, undefined> {
  const entries = await readdir(directory, { withFileTypes: true }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(directory, entry.name)
    if (entry.isDirectory() && !(depth === 0 && temporary.has(entry.name))) yield* imagesBelow(path, depth + 1)
    else if (entry.isFile() && entry.name.endsWith('.ext4')) yield path
  }
}

/** Packs a directory into one file; holes of images take no space in it. */
async function pack(directory: string, target: string): Promise<void> {
  const unfinished = `${directory}.tar`
  try {
    await execute('tar', ['--create', '--sparse', '--file', unfinished, '--directory', directory, '.'])
    await syncAt(unfinished)
    await rename(unfinished, target)
  } finally {
    await rm(unfinished, { force: true })
  }
}

async function syncAt(path: string): Promise<void> {
  await using handle = await open(path, 'r')
  await handle.sync()
}
