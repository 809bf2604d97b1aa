import type { Socket } from 'node:net'

/** A client that reads nothing for one to two of these, although something waits for it, is gone. */
const checkEveryMs = 60_000

/** Closes connections whose client does not read what waits for it. */
export class StalledClients {
  /** Bytes that each had taken at the last check; -1 if nothing waited. */
  readonly #taken = new Map<Socket, number>()
  readonly #timer: NodeJS.Timeout

  constructor(everyMs = checkEveryMs) {
    this.#timer = setInterval(() => this.#check(), everyMs).unref()
  }

  watch(socket: Socket): void {
    if (this.#taken.has(socket)) return
    this.#taken.set(socket, -1)
    socket.once('close', () => this.#taken.delete(socket))
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #check(): void {
    for (const [socket, before] of this.#taken) {
      const taken = socket.writableLength === 0 ? -1 : socket.bytesWritten - socket.writableLength
      if (taken !== -1 && taken === before) socket.destroy()
      else this.#taken.set(socket, taken)
    }
  }
}
