/** What a server records for commands that run beside it: its mode, its home directory and its address. */
import { closeSync, constants, fstatSync, openSync, readFileSync, readSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Instance } from '../base/instance.ts'
import type { Config } from '../config.ts'

/** The record of the supervisor. */
export interface ServerRecord {
  isDevelopment: boolean
  home: string
  /** The process id of the supervisor, which may have ended. */
  pid: number
}

const pathOf = (stateDir: string): string => join(stateDir, 'mode')
const addressPathOf = (frontHome: string): string => join(frontHome, 'address')

/** Records this server; the record is kept when it stops. @param pid of the supervisor. */
export function recordServer({ stateDir }: Instance, { dev, home }: Config, pid: number): void {
  rmSync(pathOf(stateDir), { force: true })
  writeFileSync(pathOf(stateDir), `${dev ? 'development' : 'keys'}\n${pid}\n${home}\n`, { mode: 0o644 })
}

/** Reads the record of the server that is running, or ran last. @param stateDir that of the instance. */
export function readServerRecord(stateDir: string): ServerRecord | undefined {
  try {
    const [mode, pid = '', home = ''] = readFileSync(pathOf(stateDir), 'utf8').split('\n')
    return { isDevelopment: mode === 'development', home, pid: Number(pid) }
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined
    throw error
  }
}

/** Records the address at which the front listens. */
export function recordAddress({ frontHome }: Instance, url: string): void {
  rmSync(addressPathOf(frontHome), { force: true })
  writeFileSync(addressPathOf(frontHome), `${url}\n`, { mode: 0o600 })
}

/** Removes the address when the front stops. */
export const removeAddress = ({ frontHome }: Instance): void => rmSync(addressPathOf(frontHome), { force: true })

/** Longer than any address on loopback. */
const maxAddressBytes = 128

/**
 * Reads the address of the front of a home directory, as a client on this machine reaches it.
 * BOUNDARY: the file belongs to the front, whose user is less trusted than root: no link is followed, and only an
 * address on loopback is accepted.
 */
export function readAddress(home: string): string | undefined {
  const path = addressPathOf(join(home, 'front'))
  let fd: number
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  } catch {
    return undefined
  }
  try {
    if (!fstatSync(fd).isFile()) return undefined
    const bytes = Buffer.alloc(maxAddressBytes)
    return toLocalUrl(bytes.toString('latin1', 0, readSync(fd, bytes)).trim())
  } finally {
    closeSync(fd)
  }
}

/** A server that listens on all addresses is reached on loopback. */
function toLocalUrl(text: string): string | undefined {
  const [, scheme, host, port] =
    /^(https?):\/\/(127\.\d+\.\d+\.\d+|0\.0\.0\.0|localhost|\[::1?\]):(\d{1,5})$/.exec(text) ?? []
  if (host === undefined) return undefined
  return `${scheme}://${host === '0.0.0.0' ? '127.0.0.1' : host === '[::]' ? '[::1]' : host}:${port}`
}
