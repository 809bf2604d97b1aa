/** The mode of the server of an instance, for commands that run beside it. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Instance } from '../base/instance.ts'
import type { Config } from '../config.ts'

const pathOf = ({ stateDir }: Instance): string => join(stateDir, 'mode')

/** Records whether this server is in development mode; the record is kept when it stops. */
export function recordMode(instance: Instance, { dev }: Config): void {
  rmSync(pathOf(instance), { force: true })
  writeFileSync(pathOf(instance), dev ? 'development\n' : 'keys\n', { mode: 0o644 })
}

/** Whether the server that is running, or ran last, is in development mode. */
export function wasDevelopment(instance: Instance): boolean {
  try {
    return readFileSync(pathOf(instance), 'utf8') === 'development\n'
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false
    throw error
  }
}
