import { Socket } from 'node:net'
import type { ProcessIo } from './process-io.ts'

/** Interval at which a process reports to the supervisor that its event loop runs, in milliseconds. */
export const heartbeatMs = 1_000

/** What a child writes on descriptor 3. */
export const signs = { alive: '.', ready: '!' } as const

/**
 * Reports to the supervisor until this process ends, on descriptor 3. A stopped process and one whose event loop is
 * blocked write nothing, so the supervisor notices both.
 */
export class Signs {
  readonly #channel = new Socket({ fd: 3, readable: false, writable: true })

  constructor() {
    // The end of the supervisor is noticed on standard input.
    this.#channel.on('error', () => undefined)
    this.#channel.unref()
    const timer = setInterval(() => this.#write(signs.alive), heartbeatMs)
    timer.unref()
    this.#channel.on('close', () => clearInterval(timer))
  }

  /** Signals that this process is ready. */
  ready(): void {
    this.#write(signs.ready)
  }

  /** Nothing is queued for a supervisor that does not read. */
  #write(sign: string): void {
    if (sign === signs.ready || this.#channel.writableLength === 0) this.#channel.write(sign)
  }
}

/** Waits until this process is stopped or the supervisor is gone. @returns which of the two. */
export function ended(io: ProcessIo): Promise<'stopped' | 'supervisor gone'> {
  return new Promise((resolve) => {
    if (io.stop.aborted) resolve('stopped')
    io.stop.addEventListener('abort', () => resolve('stopped'))
    io.stdin.on('end', () => resolve('supervisor gone'))
    io.stdin.on('error', () => resolve('supervisor gone'))
    io.stdin.resume()
  })
}
