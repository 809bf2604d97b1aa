import type { Socket } from 'node:net'
import { kernel, type PeerCredentials } from './kernel.ts'

/**
 * Returns the process, user and group that made a connection, as the kernel recorded them.
 * @returns `undefined` when the socket is not connected.
 */
export function peerCredentials(socket: Socket): PeerCredentials | undefined {
  const fd = descriptorOf(socket)
  return fd === undefined ? undefined : kernel.peerCredentials(fd)
}

/** Node keeps the descriptor of a socket on its handle and has no public accessor for it. */
function descriptorOf(socket: Socket): number | undefined {
  const handle: unknown = Reflect.get(socket, '_handle')
  const fd: unknown = typeof handle === 'object' && handle !== null ? Reflect.get(handle, 'fd') : undefined
  return typeof fd === 'number' && fd >= 0 ? fd : undefined
}
