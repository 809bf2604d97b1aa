import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { StartRefused } from './errors.ts'

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
 * @throws StartRefused if the home directory contains an invalid ID.
 */
export function openInstance(home: string, stateRoot: string): Instance {
  mkdirSync(home, { recursive: true, mode: 0o711 })
  const idPath = join(home, 'instance')
  if (!existsSync(idPath)) writeFileSync(idPath, `${randomBytes(4).toString('hex')}\n`, { mode: 0o644, flag: 'wx' })
  const id = readFileSync(idPath, 'utf8').trim()
  if (!/^[0-9a-f]{8}$/.test(id)) {
    throw new StartRefused(`${idPath} does not hold an instance id.`, 'Restore it, or remove it to get a new one.')
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
