/** A jail of the broker without a sandbox around it: its listeners are in the network namespace of the test. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { afterAll } from 'vitest'
import type { JailAccounts } from '../../src/egress/accounts.ts'
import { EgressJail } from '../../src/egress/jail.ts'
import { JailListener } from '../../src/egress/listener.ts'
import type { PackageCache } from '../../src/egress/packages/package-cache.ts'
import type { BrokerNetwork } from '../../src/egress/protocol.ts'
import { Resolver } from '../../src/egress/resolver.ts'

export const noLimits = { connections: 4096, bytes: 0, bytesPerSecond: 0 }

export interface TestJail {
  jail: EgressJail
  /** The port of its proxy. */
  port: number
  /** Connects to it. */
  dial(): Promise<Socket>
}

const closings: (() => void)[] = []

/** Ends everything that a file opened. Called once in each file. */
export function closeJailsAfterAll(): void {
  afterAll(() => {
    for (const close of closings.splice(0)) close()
  })
}

/**
 * @param names what a name server answers; a function is asked each time.
 * @param listenOn an address other than that of the proxy makes every connection one to that address.
 */
export async function openJail(
  network: Partial<BrokerNetwork>,
  names: Readonly<Record<string, readonly string[] | (() => readonly string[])>> = {},
  listenOn = '127.0.0.1',
  roots: readonly string[] = [],
  accounts?: JailAccounts,
  packages?: Promise<PackageCache>,
): Promise<TestJail> {
  const resolver = new Resolver(async (host) => {
    const answer = names[host] ?? []
    return typeof answer === 'function' ? answer() : answer
  })
  const policy = { policy: 'allow', rules: [], limits: noLimits, ...network } satisfies BrokerNetwork
  const jail = new EgressJail(policy, { resolver, isOwn: () => false, roots, ...(packages && { packages }) }, accounts)
  const listener = new JailListener(jail)
  const handle = createServer().listen(0, listenOn)
  await once(handle, 'listening')
  const { port } = handle.address() as AddressInfo
  await listener.listen(handle)
  closings.push(() => {
    jail.close()
    listener.close()
    handle.close()
  })
  return { jail, port, dial: () => dial(port, listenOn) }
}

export async function dial(port: number, host = '127.0.0.1'): Promise<Socket> {
  const socket = connect({ port, host, allowHalfOpen: true })
  socket.on('error', () => undefined)
  await once(socket, 'connect')
  return socket
}

/** Resolves when a connection was refused, before or after it was open. */
export async function refused(port: number, host = '127.0.0.1'): Promise<void> {
  const socket = connect({ port, host })
  socket.on('error', () => undefined)
  socket.resume()
  await new Promise((resolve) => socket.once('close', resolve))
}

/** A server on loopback. @returns its port. */
export async function serve(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  closings.push(() => server.close())
  return (server.address() as AddressInfo).port
}

/** Everything that a socket receives until its end. */
export async function received(socket: Socket): Promise<string> {
  const pieces: Buffer[] = []
  socket.on('data', (piece: Buffer) => pieces.push(piece))
  socket.resume()
  await Promise.race([once(socket, 'end'), once(socket, 'close')])
  return Buffer.concat(pieces).toString('latin1')
}

/** Receives until a text was seen; what follows it stays to be read. */
export function receivedUntil(socket: Socket, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let all = ''
    const look = (piece: Buffer) => {
      all += piece.toString('latin1')
      const end = all.indexOf(text) + text.length
      if (end < text.length) return
      socket.off('data', look)
      socket.pause()
      if (end < all.length) socket.unshift(Buffer.from(all.slice(end), 'latin1'))
      resolve(all.slice(0, end))
    }
    socket.on('data', look)
    socket.once('close', () => reject(new Error(`closed after ${JSON.stringify(all)}`)))
    socket.resume()
  })
}

/** Opens a tunnel. @returns the head of the answer. */
export async function connectThrough(socket: Socket, authority: string): Promise<string> {
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`)
  return receivedUntil(socket, '\r\n\r\n')
}
