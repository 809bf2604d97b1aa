import { randomBytes } from 'node:crypto'
import { closeSync, fsyncSync, linkSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { diskProblemOf } from './disk-errors.ts'
import { makeDirectoryDurably, syncDirectory } from './durable-directory.ts'
import { StartRefused } from './errors.ts'

/** The defaults of the settings `home` and `state_dir`. Client commands use them without loading all settings. */
export const defaultHome = '/var/lib/glovebox'
export const defaultStateDir = '/run/glovebox'

/** The ID and the directories of one instance. The ID is part of the name of everything that it creates on the machine. */
export interface Instance {
  id: string
  /** Runtime state, gone after a reboot. */
  stateDir: string
  /** The socket of the runner, in a directory that only the runner and the front can access. */
  socketPath: string
  /** The data of the front, owned by its user. */
  frontHome: string
  /** The read-only mount of the program for the front. */
  frontProgram: string
}

/**
 * Opens the instance in a home directory; creates it on first use.
 * @param home absolute path; only root can access its content, except for the part of the front.
 * @param stateRoot directory for the runtime state of all instances, for example `/run/glovebox`.
 * @throws StartRefused if the home directory contains an invalid ID, or cannot be written to.
 */
export function openInstance(home: string, stateRoot: string): Instance {
  const idPath = join(home, 'instance')
  const id = idOf(home, idPath)
  if (!/^[0-9a-f]{8}$/.test(id)) {
    throw new StartRefused(`${idPath} does not contain an instance id.`, 'Restore it, or remove it to get a new one.')
  }
  const stateDir = join(stateRoot, id)
  return {
    id,
    stateDir,
    socketPath: join(stateDir, 'link', 'runner.sock'),
    frontHome: join(home, 'front'),
    frontProgram: join(stateDir, 'program'),
  }
}

/** Returns the ID in a home directory, which is created where needed. @throws StartRefused unless the disk is the reason. */
function idOf(home: string, idPath: string): string {
  try {
    makeDirectoryDurably(home, 0o711)
    return readId(idPath) || createId(idPath)
  } catch (error) {
    if (diskProblemOf(error) !== undefined) throw error
    const refused = new StartRefused(
      `The home directory ${home} cannot be used: ${(error as Error).message}.`,
      'Make it a directory that root can write to, or choose another one with --home.',
    )
    refused.cause = error
    throw refused
  }
}

/** Returns the ID, or nothing if there is no file, or an empty one, as a power cut can leave behind. */
function readId(path: string): string {
  try {
    return readFileSync(path, 'utf8').replaceAll('\0', '').trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    return ''
  }
}

/** The file appears with its content, on the disk, or not at all. Of several processes at once, one creates it. */
function createId(path: string): string {
  const unfinished = `${path}.${randomBytes(4).toString('hex')}`
  const file = openSync(unfinished, 'wx', 0o644)
  try {
    writeSync(file, `${randomBytes(4).toString('hex')}\n`)
    fsyncSync(file)
    rmIfEmpty(path)
    linkSync(unfinished, path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    closeSync(file)
    rmSync(unfinished, { force: true })
  }
  syncDirectory(dirname(path))
  return readId(path)
}

function rmIfEmpty(path: string): void {
  if (readId(path) === '') rmSync(path, { force: true })
}
