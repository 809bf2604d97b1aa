import { once } from 'node:events'
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { SlotCgroup } from '../cgroups/cgroups.ts'
import type { WatchOrder, WatchReport, WatchSettings } from './socket-memory-thread.ts'

/**
 * What sockets of a run may hold beside its memory limit, as a share of that limit. The kernel charges these buffers to
 * no cgroup: answers of netlink, datagrams that are corked or (cgroup v1) unread, connections that wait to be accepted.
 */
const heldShare = 0.05
/** A tenth of the smallest limit that a profile can have, less what is filled between two looks. */
const heldMinBytes = 1280 * 1024

// Its name ends as that of this module: the package contains JavaScript.
const program = new URL(`./socket-memory-thread${extname(import.meta.filename)}`, import.meta.url)

/** What is watched: the sockets of one run, or of one sandbox. */
export interface SocketOwner {
  /** One of its processes, by its number on the host. */
  pid: number
  cgroup: SlotCgroup
  /** Processes in the `run` leaf of the cgroup that are not its own. */
  residents: ReadonlySet<number>
  memoryBytes: number
  /** How many processors it can use at once. */
  cpus: number
}

/**
 * Watches the socket buffers of runs and sandboxes that no cgroup limits. A thread looks at them and kills all processes of
 * what exceeds its share, so that a busy runner does not delay that.
 */
export class SocketMemory {
  readonly #thread: Worker
  readonly #exceeded = new Map<number, () => void>()
  #last = 0

  private constructor(thread: Worker) {
    this.#thread = thread
    thread.on('message', (number: Exclude<WatchReport, 'ready'>) => this.#exceeded.get(number)?.())
    // Runs must not go on unwatched: the runner ends, and is started again.
    thread.on('error', (error) => {
      throw error
    })
    thread.unref()
  }

  /**
   * Starts the thread.
   * @param cpuFile where the kernel counts the processor time of all slots.
   * @throws Error when the thread cannot be started.
   */
  static async open(cpuFile: string): Promise<SocketMemory> {
    const thread = new Worker(program, { workerData: { cpuFile } satisfies WatchSettings })
    await once(thread, 'message')
    return new SocketMemory(thread)
  }

  /** @param exceeded called at most once, when the processes of the owner have been killed. */
  watch({ pid, cgroup, residents, memoryBytes, cpus }: SocketOwner, exceeded: () => void): SocketMemoryWatch {
    this.#last += 1
    const number = this.#last
    const struck = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT))
    const limitBytes = Math.max(heldMinBytes, memoryBytes * heldShare)
    const { procsDir, cpuFile } = cgroup.counters
    this.#exceeded.set(number, exceeded)
    this.#tell({ number, pid, procsDir, residents: [...residents], cpuFile, cpus, limitBytes, struck })
    return {
      get hasStruck() {
        return Atomics.load(struck, 0) === 1
      },
      stop: () => {
        if (this.#exceeded.delete(number)) this.#tell({ stop: number })
      },
    }
  }

  /** Ends the thread. Nothing is watched any more. */
  async release(): Promise<void> {
    await this.#thread.terminate()
  }

  #tell(order: WatchOrder): void {
    this.#thread.postMessage(order)
  }
}

export interface SocketMemoryWatch {
  /** Whether the processes have been killed for what their sockets held. It is known before their end can be noticed. */
  readonly hasStruck: boolean
  stop(): void
}
