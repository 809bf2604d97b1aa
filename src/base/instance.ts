import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { StartRefused } from './errors.ts'

/** Where the processes of one instance meet. The id is in the name of all that it makes on the machine. */
export interface Instance {
  id: string
  /** Runtime state, gone after a reboot. */
  stateDir: string
  /** The runner's socket; its directory is for the runner and the front alone. */
  socketPath: string
  /** What the front keeps, owned by its user. */
  frontHome: string
  /** Where the front sees the program, read-only. */
  frontProgram: string
}

/**
 * Opens the instance that lives in a home directory; makes it on first use.
 * @param home absolute path; only root may enter what is below it, but for the front's own part.
 * @param stateRoot where runtime state of all instances is, for example `/run/glovebox`.
 * @throws StartRefused when the home holds an id that is none.
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
