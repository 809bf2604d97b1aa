import { Duplex } from 'node:stream'
import { Credit } from '../../base/credit.ts'
import type { FromRunner } from '../protocol/messages.ts'
import { type FromTunnels, isOfTunnel, tunnelPieceBytes, tunnelWindowBytes } from '../protocol/tunnel-messages.ts'
import type { SandboxLink } from './sandbox-client.ts'

/** Credit is returned in this unit. */
const creditUnitBytes = tunnelWindowBytes / 4

/** The connections of the front to servers in sandboxes. */
export class TunnelClient {
  readonly #link: SandboxLink
  readonly #tunnels = new Map<number, Tunnel>()

  constructor(link: SandboxLink) {
    this.#link = link
  }

  /**
   * Connects to a port on the loopback of a sandbox.
   * @throws Refusal port_closed, sandbox_not_running, sandbox_unknown, unavailable.
   */
  async open(sandboxId: string, port: number): Promise<Duplex> {
    let number = 0
    let tunnel: Tunnel | undefined
    const asking = this.#link.ask(
      (request) => ({ type: 'tunnel_open', request, sandboxId, port }),
      (request) => {
        number = request
        tunnel = new Tunnel(this.#link, request, () => this.#tunnels.delete(request))
        this.#tunnels.set(request, tunnel)
      },
    )
    try {
      await asking
    } catch (error) {
      this.#tunnels.delete(number)
      throw error
    }
    return tunnel!
  }

  /** Handles a message, if it is of a tunnel. Those of one that is closed are ignored. @returns whether it is. */
  takes(message: FromRunner, payload: Buffer): message is FromTunnels {
    if (!isOfTunnel(message)) return false
    this.#take(message, payload)
    return true
  }

  #take(message: FromTunnels, payload: Buffer): void {
    const tunnel = this.#tunnels.get(message.request)
    switch (message.type) {
      case 'tunnel_bytes':
        // A view of the read buffer.
        tunnel?.receive(Buffer.from(payload))
        return
      case 'tunnel_room':
        tunnel?.credit.add(message.bytes)
        return
      case 'tunnel_end':
        tunnel?.receive(null)
        return
      case 'tunnel_closed':
        this.#tunnels.delete(message.request)
        tunnel?.lose()
    }
  }

  /** The connection to the runner is lost, and every tunnel with it. */
  lose(): void {
    for (const tunnel of this.#tunnels.values()) tunnel.lose()
    this.#tunnels.clear()
  }
}

/** One connection. It holds no more than a window of bytes that its reader has not taken. */
class Tunnel extends Duplex {
  /** For what this side sends. */
  readonly credit = new Credit(tunnelWindowBytes)
  readonly #link: SandboxLink
  readonly #number: number
  readonly #closed: () => void
  readonly #waiting: (Buffer | null)[] = []
  #isWanted = false
  #owedBytes = 0
  #isLost = false

  constructor(link: SandboxLink, number: number, closed: () => void) {
    super({ allowHalfOpen: true, readableHighWaterMark: tunnelPieceBytes, writableHighWaterMark: tunnelPieceBytes })
    this.#link = link
    this.#number = number
    this.#closed = closed
  }

  /** @param bytes `null`: nothing more follows. */
  receive(bytes: Buffer | null): void {
    this.#waiting.push(bytes)
    this.#deliver()
  }

  /** The other side has ended both directions. */
  lose(): void {
    this.#isLost = true
    this.credit.close()
    // What has arrived can still be read.
    if (this.#waiting.at(-1) !== null && !this.readableEnded) this.receive(null)
    if (!this.writableFinished) this.destroy()
  }

  override _read(): void {
    this.#isWanted = true
    this.#deliver()
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error) => void): void {
    this.#send(chunk).then((isSent) => done(isSent ? undefined : new Error('the connection was lost')), done)
  }

  override _final(done: () => void): void {
    if (!this.#isLost) this.#link.send({ type: 'tunnel_finish', tunnel: this.#number })
    done()
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.credit.close()
    this.#closed()
    this.#waiting.length = 0
    if (!this.#isLost) this.#link.send({ type: 'tunnel_close', tunnel: this.#number })
    done(error)
  }

  async #send(chunk: Buffer): Promise<boolean> {
    for (let at = 0; at < chunk.length; at += tunnelPieceBytes) {
      const piece = chunk.subarray(at, at + tunnelPieceBytes)
      if (!(await this.credit.spend(piece.length))) return false
      this.#link.send({ type: 'tunnel_send', tunnel: this.#number }, piece)
    }
    return true
  }

  #deliver(): void {
    while (this.#isWanted && this.#waiting.length > 0 && !this.destroyed) {
      const bytes = this.#waiting.shift()!
      this.#isWanted = this.push(bytes)
      this.#owe(bytes?.length ?? 0)
    }
  }

  #owe(bytes: number): void {
    this.#owedBytes += bytes
    if (this.#owedBytes < creditUnitBytes || this.#isLost) return
    this.#link.send({ type: 'tunnel_more', tunnel: this.#number, bytes: this.#owedBytes })
    this.#owedBytes = 0
  }
}
