import { statSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { StartRefused } from './errors.ts'

/** A dead process's successor may start while its children are still ending; longer than this they do not take. */
const patienceMs = 15_000

/**
 * The right to be the one process of its kind for a home directory. Held as an abstract UNIX socket (unix(7)), which
 * the kernel frees when the process ends, however it ends.
 */
export class InstanceLock {
  readonly #server: Server

  private constructor(server: Server) {
    this.#server = server
  }

  /**
   * @param home an existing directory; two names of the same directory are the same lock.
   * @param part which process of the instance, for example `runner`.
   * @param waits whether a holder that is about to end is waited for, or refused at once.
   * @throws StartRefused when another process holds it.
   */
  static async acquire(home: string, part: string, waits: boolean): Promise<InstanceLock> {
    const { dev, ino } = statSync(home)
    const deadlineMs = performance.now() + (waits ? patienceMs : 0)
    for (;;) {
      const server = await listen(`\0glovebox-${dev}-${ino}-${part}`)
      if (server) return new InstanceLock(server)
      if (performance.now() >= deadlineMs) {
        throw new StartRefused(
          `Another glovebox (${part}) is running with the home directory ${home}.`,
          'Stop it first, or give this one a home of its own with --home.',
        )
      }
      await sleep(50)
    }
  }

  release(): void {
    this.#server.close()
  }
}

function listen(name: string): Promise<Server | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy())
    server.unref()
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(undefined)
      else reject(error)
    })
    server.listen(name, () => resolve(server))
  })
}
