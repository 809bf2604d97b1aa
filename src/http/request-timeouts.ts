import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { monotonicMs } from '../base/clock.ts'

const checkEveryMs = 5_000

/**
 * Closes connections whose request takes too long to arrive. Node has one such limit for the whole server, but an
 * upload may take as long as it needs.
 */
export class RequestTimeouts {
  readonly #timeoutMs: number
  /** The latest request of each open connection. */
  readonly #latest = new Map<Socket, { request: IncomingMessage; sinceMs: number }>()
  /** Connections whose end is listened for already. */
  readonly #sockets = new WeakSet<Socket>()
  readonly #timer: NodeJS.Timeout

  /** @param timeoutMs for a whole request, from the end of its headers on. */
  constructor(timeoutMs: number, everyMs = checkEveryMs) {
    this.#timeoutMs = timeoutMs
    this.#timer = setInterval(() => this.#check(), everyMs).unref()
  }

  /** Starts the timeout of a request whose headers have arrived. */
  add(request: IncomingMessage): void {
    const { socket } = request
    if (!this.#latest.has(socket) && !this.#sockets.has(socket)) {
      this.#sockets.add(socket)
      socket.once('close', () => this.#latest.delete(socket))
    }
    this.#latest.set(socket, { request, sinceMs: monotonicMs() })
  }

  /** Exempts a request from the timeout. */
  exempt({ socket }: IncomingMessage): void {
    this.#latest.delete(socket)
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #check(): void {
    const startedBeforeMs = monotonicMs() - this.#timeoutMs
    for (const [socket, { request, sinceMs }] of this.#latest) {
      if (request.complete || sinceMs > startedBeforeMs) continue
      socket.end('HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
      socket.destroySoon()
    }
  }
}
