import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { monotonicMs } from '../base/clock.ts'

const lookEveryMs = 5_000

/**
 * Cuts off who takes too long to send a request: a connection that is held for nothing. Node's own limit is one for the
 * whole server, and an upload may take as long as it needs.
 */
export class RequestTimeouts {
  readonly #patienceMs: number
  /** The latest request of each open connection. */
  readonly #latest = new Map<Socket, { request: IncomingMessage; sinceMs: number }>()
  readonly #looking: NodeJS.Timeout

  /** @param patienceMs for a whole request, from its head on. */
  constructor(patienceMs: number, everyMs = lookEveryMs) {
    this.#patienceMs = patienceMs
    this.#looking = setInterval(() => this.#look(), everyMs).unref()
  }

  /** To be called with every request once its head is there. */
  add(request: IncomingMessage): void {
    const { socket } = request
    if (!this.#latest.has(socket)) socket.once('close', () => this.#latest.delete(socket))
    this.#latest.set(socket, { request, sinceMs: monotonicMs() })
  }

  /** It has a patience of its own. */
  excuse({ socket }: IncomingMessage): void {
    this.#latest.delete(socket)
  }

  stop(): void {
    clearInterval(this.#looking)
  }

  #look(): void {
    const tooOldMs = monotonicMs() - this.#patienceMs
    for (const [socket, { request, sinceMs }] of this.#latest) {
      if (request.complete || sinceMs > tooOldMs) continue
      socket.end('HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
      socket.destroySoon()
    }
  }
}
