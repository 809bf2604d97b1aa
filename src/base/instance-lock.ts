import { statSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { StartRefused } from './errors.ts'

/** Maximum time that the children of a previous process need to exit. */
const patienceMs = 15_000

/**
 * Ensures that only one process of its kind runs for a home directory. The lock is an abstract UNIX socket (unix(7)),
 * which the kernel releases when the process exits.
 */
export class InstanceLock {
  readonly #server: Server

  private constructor(server: Server) {
    this.#server = server
  }

  /**
   * @param home an existing directory; different paths to one directory are the same lock.
   * @param part the process of the instance, for example `runner`.
   * @param waits whether to wait for the current holder to exit.
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
          'Stop it first, or use another home directory with --home.',
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
