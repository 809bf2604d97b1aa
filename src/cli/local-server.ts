/** Finds the server of this machine, so that client commands of the same user need no address. */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { defaultHome, defaultStateDir } from '../base/instance.ts'
import { ClientError } from './client-error.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'
import { readAddress, readServerRecord } from './server-record.ts'

export interface LocalServer {
  url: string
  /** Whether it requires no key. */
  isDevelopment: boolean
}

/**
 * Finds the running server of this machine: that of the home directory of the environment (GLOVEBOX_HOME) or the default
 * one, otherwise the only one that is running.
 * @returns `undefined` if none is running, or if this user cannot see it.
 * @throws ClientError when it is unclear which of several servers is meant.
 */
export function findLocalServer(env: ProcessIo['env']): LocalServer | undefined {
  const wantedHome = env.GLOVEBOX_HOME ?? defaultHome
  const running = instancesIn(env.GLOVEBOX_STATE_DIR ?? defaultStateDir)
  const wanted = running.find(({ home }) => home === wantedHome)
  if (wanted || env.GLOVEBOX_HOME !== undefined || running.length === 0) return wanted
  if (running.length === 1) return running[0]
  const urls = running.map(({ url }) => url).join(', ')
  throw new ClientError(`several servers are running on this machine; choose one with --url: ${urls}`, exitCodes.usage)
}

function instancesIn(stateRoot: string): (LocalServer & { home: string })[] {
  return namesIn(stateRoot).flatMap((name) => {
    const record = readServerRecord(join(stateRoot, name))
    if (record === undefined || record.home === '' || !isAlive(record.pid)) return []
    const url = readAddress(record.home)
    return url === undefined ? [] : [{ url, isDevelopment: record.isDevelopment, home: record.home }]
  })
}

/** Only the user of the server can list its state directory; for any other there is no server to find. */
function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory)
  } catch {
    return []
  }
}

function isAlive(pid: number): boolean {
  if (!Number.isInteger(pid) || pid < 1) return false
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
