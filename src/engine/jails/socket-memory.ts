import { once } from 'node:events'
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { SlotCgroup } from '../cgroups/cgroups.ts'
import {
  cellCount,
  cells,
  type SlotMessage,
  states,
  type ThreadMessage,
  type ThreadSettings,
} from './socket-memory-cells.ts'

/**
 * What sockets of a run may hold beside its memory limit, as a share of that limit. The kernel charges these buffers to
 * no cgroup: answers of netlink, datagrams that are corked, connections that wait to be accepted.
 */
const heldShare = 0.05
/** A tenth of the smallest limit that a profile can have, less what is filled between two looks. */
const heldMinBytes = 1280 * 1024

// Its name ends as that of this module: the package contains JavaScript.
const program = new URL(`./socket-memory-thread${extname(import.meta.filename)}`, import.meta.url)

/** The run or the sandbox of a slot that is watched. */
export interface SocketOwner {
  /** Its first process, by its number on the host. Everything of it ends with that process. */
  pid: number
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
  readonly #state: Int32Array
  readonly #slots = new Map<number, SlotSockets>()
  #lastSlot = 0

  private constructor(thread: Worker, state: Int32Array) {
    this.#thread = thread
    this.#state = state
    thread.on('message', ({ slot, run }: Exclude<ThreadMessage, 'ready'>) => this.#slots.get(slot)?.struck(run))
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
    const state = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT))
    const thread = new Worker(program, { workerData: { cpuFile, state } satisfies ThreadSettings })
    await once(thread, 'message')
    return new SocketMemory(thread, state)
  }

  /** Prepares for the runs of one slot. */
  addSlot({ counters }: Pick<SlotCgroup, 'counters'>): SlotSockets {
    this.#lastSlot += 1
    const number = this.#lastSlot
    const shared = new Int32Array(new SharedArrayBuffer(cellCount * Int32Array.BYTES_PER_ELEMENT))
    const removed = () => {
      if (this.#slots.delete(number)) this.#send({ gone: number })
    }
    const slot = new SlotSockets(shared, () => this.#wake(), removed)
    this.#slots.set(number, slot)
    this.#send({ number, ...counters, shared })
    return slot
  }

  /** Ends the thread. Nothing is watched any more. */
  async release(): Promise<void> {
    await this.#thread.terminate()
  }

  #send(message: SlotMessage): void {
    this.#thread.postMessage(message)
    this.#wake()
  }

  #wake(): void {
    if (Atomics.compareExchange(this.#state, 0, states.sleeping, states.looking) === states.sleeping)
      Atomics.notify(this.#state, 0)
  }
}

/** The socket buffers of one slot, which has one run or sandbox at a time. */
export class SlotSockets {
  readonly #shared: Int32Array
  readonly #wake: () => void
  readonly #removed: () => void
  #run = 0
  #exceeded: (() => void) | undefined

  constructor(shared: Int32Array, wake: () => void, removed: () => void) {
    this.#shared = shared
    this.#wake = wake
    this.#removed = removed
  }

  /** @param exceeded called at most once, when the processes of the owner have been killed, and not after `end`. */
  begin({ pid, memoryBytes, cpus }: SocketOwner, exceeded: () => void): void {
    const limitBytes = Math.max(heldMinBytes, memoryBytes * heldShare)
    this.#run += 1
    this.#exceeded = exceeded
    Atomics.store(this.#shared, cells.pid, pid)
    Atomics.store(this.#shared, cells.limitKib, Math.floor(limitBytes / 1024))
    Atomics.store(this.#shared, cells.cpus, Math.ceil(cpus * 100))
    Atomics.store(this.#shared, cells.run, this.#run)
    this.#wake()
  }

  end(): void {
    this.#exceeded = undefined
    Atomics.store(this.#shared, cells.run, 0)
  }

  /** Whether the last owner was killed for what its sockets held. It is known before the end of its processes is. */
  get hasStruck(): boolean {
    return this.#run > 0 && Atomics.load(this.#shared, cells.struck) === this.#run
  }

  /** The thread has killed the processes of a run, which may have ended otherwise. */
  struck(run: number): void {
    if (run === this.#run) this.#exceeded?.()
  }

  /** The slot is gone. */
  release(): void {
    this.#removed()
  }
}
