import { Socket } from 'node:net'
import { Refusal } from '../../base/errors.ts'
import { whenResolved } from '../../base/when-resolved.ts'
import type { FrontLink } from '../front-link.ts'
import { type ToTunnels, tunnelPieceBytes, tunnelWindowBytes } from '../protocol/tunnel-messages.ts'
import { WireError } from '../protocol/wire.ts'
import type { Sandboxes } from './sandboxes.ts'

/** Connections of one front to servers in sandboxes; each has one descriptor here. */
const tunnelsMax = 8_192

interface Tunnel {
  socket: Socket
  /** Bytes that may be sent to the front. */
  windowBytes: number
  /** Bytes that the front may send. */
  roomBytes: number
  hasEnded: boolean
}

/** The connections of one front to servers in sandboxes. What a sandbox sends waits in the kernel while the front is slow. */
export class Tunnels {
  readonly #sandboxes: Pick<Sandboxes, 'get'>
  readonly #link: FrontLink
  readonly #tunnels = new Map<number, Tunnel>()
  /** All connections are read into it, one after another. */
  readonly #buffer = Buffer.allocUnsafe(tunnelPieceBytes)
  #opening = 0
  #isStopped = false

  constructor(sandboxes: Pick<Sandboxes, 'get'>, link: FrontLink) {
    this.#sandboxes = sandboxes
    this.#link = link
  }

  handle(message: ToTunnels, payload: Buffer): void {
    if (message.type === 'tunnel_open') {
      this.#open(message).then(
        () => this.#link.send({ type: 'ok', request: message.request }),
        (error: unknown) => this.#link.refuse(message.request, error),
      )
      return
    }
    // It may have ended meanwhile.
    const tunnel = this.#tunnels.get(message.tunnel)
    if (tunnel === undefined) return
    switch (message.type) {
      case 'tunnel_send':
        this.#write(message.tunnel, tunnel, payload)
        return
      case 'tunnel_more':
        tunnel.windowBytes += message.bytes
        this.#resume(tunnel)
        return
      case 'tunnel_finish':
        tunnel.socket.end()
        return
      case 'tunnel_close':
        this.#tunnels.delete(message.tunnel)
        tunnel.socket.destroy()
    }
  }

  /** The connection to the front has room again. */
  pump(): void {
    for (const tunnel of this.#tunnels.values()) {
      if (this.#link.isFull()) return
      this.#resume(tunnel)
    }
  }

  /** The front is gone. */
  stop(): void {
    this.#isStopped = true
    for (const { socket } of this.#tunnels.values()) socket.destroy()
    this.#tunnels.clear()
  }

  async #open({ request, sandboxId, port }: Extract<ToTunnels, { type: 'tunnel_open' }>): Promise<void> {
    if (this.#tunnels.size + this.#opening >= tunnelsMax)
      throw new Refusal('unavailable', { reason: 'the runner has too many connections to sandboxes' })
    if (this.#tunnels.has(request)) throw new WireError('two tunnels with one number')
    this.#opening += 1
    try {
      const sandbox = this.#sandboxes.get(sandboxId)
      const socket = this.#add(request, await sandbox.connect(port))
      // A server that is gone looks like one that has sent all that it has.
      socket.once(
        'close',
        whenResolved(sandbox.ended, () => socket.destroy()),
      )
    } finally {
      this.#opening -= 1
    }
  }

  #add(request: number, fd: number): Socket {
    const socket = new Socket({
      ...{ fd, readable: true, writable: true, allowHalfOpen: true },
      onread: { buffer: this.#buffer, callback: (bytes: number) => this.#read(request, bytes) },
    })
    const tunnel: Tunnel = { socket, windowBytes: tunnelWindowBytes, roomBytes: tunnelWindowBytes, hasEnded: false }
    this.#tunnels.set(request, tunnel)
    socket.on('error', () => socket.destroy())
    socket.on('end', () => {
      tunnel.hasEnded = true
      this.#link.send({ type: 'tunnel_end', request })
    })
    socket.on('close', () => {
      if (this.#tunnels.delete(request)) this.#link.send({ type: 'tunnel_closed', request })
    })
    if (this.#isStopped) socket.destroy()
    else socket.resume()
    return socket
  }

  /** @returns whether more may be read. */
  #read(request: number, bytes: number): boolean {
    const tunnel = this.#tunnels.get(request)
    if (tunnel === undefined) return false
    tunnel.windowBytes -= bytes
    this.#link.send({ type: 'tunnel_bytes', request }, this.#buffer.subarray(0, bytes))
    return tunnel.windowBytes > 0 && !this.#link.isFull()
  }

  #resume({ socket, windowBytes, hasEnded }: Tunnel): void {
    if (windowBytes > 0 && !hasEnded && !this.#link.isFull()) socket.resume()
  }

  /** BOUNDARY: a front that sends more than it may loses this tunnel. */
  #write(request: number, tunnel: Tunnel, payload: Buffer): void {
    tunnel.roomBytes -= payload.length
    if (tunnel.roomBytes < 0) return void tunnel.socket.destroy()
    // A view of the buffer that was read, which would pin all of it while the server does not read.
    tunnel.socket.write(Buffer.from(payload), (error) => {
      if (error || !this.#tunnels.has(request)) return
      tunnel.roomBytes += payload.length
      this.#link.send({ type: 'tunnel_room', request, bytes: payload.length })
    })
  }
}
