import { createServer, type Server, type Socket } from 'node:net'
import type { Target } from './decision.ts'
import { HttpProxy } from './http-proxy.ts'
import { type EgressJail, plainAddress } from './jail.ts'
import { takeSocks } from './socks.ts'
import { tunnel } from './tunnel.ts'

const firstByteOfSocks = 5

/** Serves the connections of one jail: those to the proxy on loopback, and those that were meant for another address. */
export class JailListener {
  readonly #jail: EgressJail
  readonly #proxy: HttpProxy
  readonly #servers: Server[] = []

  constructor(jail: EgressJail) {
    this.#jail = jail
    this.#proxy = new HttpProxy(jail)
  }

  /** Accepts connections of a socket that listens in the jail. Resolves when it does. */
  listen(handle: Server): Promise<void> {
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (socket) =>
      this.#take(socket),
    )
    this.#servers.push(server)
    return new Promise((resolve, reject) => {
      server.once('error', reject)
      server.listen(handle, resolve)
    })
  }

  close(): void {
    for (const server of this.#servers) server.close()
  }

  #take(socket: Socket): void {
    if (!this.#jail.accept(socket)) return
    const host = plainAddress(socket.localAddress ?? '')
    if (host === '127.0.0.1' || host === '::1') this.#detect(socket)
    else void this.#passOn(socket, { host: this.#jail.names.nameOf(host) ?? host, port: socket.localPort ?? 0 })
  }

  /** A program that knows the proxy: the first byte shows which protocol it speaks. */
  #detect(socket: Socket): void {
    const ended = () => socket.end()
    socket.once('data', (first: Buffer) => {
      socket.off('end', ended)
      socket.pause()
      socket.unshift(first)
      if (first[0] === firstByteOfSocks) takeSocks(this.#jail, socket, this.#asHttp)
      else this.#proxy.take(socket)
    })
    socket.once('end', ended)
    socket.resume()
  }

  /** A program that knows no proxy: its connection is refused as by a firewall, since nothing else could be said. */
  async #passOn(socket: Socket, target: Target): Promise<void> {
    try {
      if (this.#jail.readsRequests(target)) return this.#asHttp(socket, target)
      const outside = await this.#jail.connect(target)
      if (socket.destroyed) return void outside.socket.destroy()
      tunnel(this.#jail, socket, outside, target, this.#asHttp)
    } catch {
      socket.resetAndDestroy()
    }
  }

  readonly #asHttp = (inside: Socket, target: Target): void => this.#proxy.takeFor(inside, target)
}
