import { createRequire } from 'node:module'
import type { Socket } from 'node:net'
import { fileURLToPath } from 'node:url'

export interface PeerCredentials {
  pid: number
  uid: number
  gid: number
}

const addonPath = fileURLToPath(new URL('../../../build/peer-credentials.node', import.meta.url))
const addon = createRequire(import.meta.url)(addonPath) as { peerCredentials(fd: number): PeerCredentials | undefined }

/** @returns who made the connection, as the kernel recorded it; `undefined` when the socket is not a connected one. */
export function peerCredentials(socket: Socket): PeerCredentials | undefined {
  const fd = descriptorOf(socket)
  return fd === undefined ? undefined : addon.peerCredentials(fd)
}

/** Node keeps the descriptor of a socket on its handle; nothing public tells it. */
function descriptorOf(socket: Socket): number | undefined {
  const handle: unknown = Reflect.get(socket, '_handle')
  const fd: unknown = typeof handle === 'object' && handle !== null ? Reflect.get(handle, 'fd') : undefined
  return typeof fd === 'number' && fd >= 0 ? fd : undefined
}
