/**
 * The thread of SocketMemory (socket-memory.ts). It blocks while it waits and has no event loop, so that no work of the runner
 * delays it, and runs and sandboxes begin and end without messages: their slots share a few numbers with it.
 */
import { closeSync, openSync, readlinkSync, readSync } from 'node:fs'
import { setPriority } from 'node:os'
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads'
import { killPid, readPids } from '../cgroups/cgroup-files.ts'
import {
  cells,
  type SharedSlot,
  type SlotMessage,
  states,
  type ThreadMessage,
  type ThreadSettings,
} from './socket-memory-cells.ts'
import { SocketQueues, unacceptedBytesIn } from './socket-queues.ts'

/** What a program fills in a millisecond of processor time, but for netlink, whose answers come at a twentieth of that. */
const filledKibPerMs = 8 * 1024
/** Between two looks at the number of sockets of what uses processor time. */
const minPauseMs = 1
const maxPauseMs = 20
/** Above this number of active watches each has longer pauses: so many share the processors, and fill more slowly. */
const activeAtFullRate = 16
/** Between two looks at its processor time and its netlink sockets. */
const fullLookMs = 10
/**
 * After a long listing of sockets, as a multiple of the time that it took: a program with many costs the machine no more.
 * Meanwhile their number is looked at.
 */
const pausePerListing = 3
/** Between two looks at the processor time of what used none. */
const maxIdlePauseMs = 25
/** A kernel counts processor time at its clock ticks, at most 10 ms apart. What used none for longer than this is idle. */
const idleAfterMs = 40
/** Until a run that has just begun is noticed, while others are looked at. */
const noticedWithinMs = 4
/** After the last run. Waking the thread for each of many short runs would cost more than looking around. */
const sleepAfterMs = 1_000
/** Processes that a forking program can add while they are being killed. */
const killRounds = 3

/** The sockets of one run or sandbox. */
class Watch {
  readonly run: number
  /** When it is looked at next. */
  dueMs: number
  readonly #slot: SharedSlot
  readonly #pid: number
  readonly #limitBytes: number
  readonly #pauseMs: number
  #queues: SocketQueues | undefined
  /** The network namespace of all its processes, and of no others in the cgroup. */
  #network: string | undefined
  #cpu: CpuCounter | undefined
  #cpuUsed: number | undefined
  #readMs = 0
  #listAfterMs = 0
  #activeMs: number

  constructor(slot: SharedSlot, run: number, nowMs: number) {
    this.#slot = slot
    this.run = run
    this.#pid = Atomics.load(slot.shared, cells.pid)
    const limitKib = Atomics.load(slot.shared, cells.limitKib)
    this.#limitBytes = limitKib * 1024
    const fillMs = limitKib / filledKibPerMs / Math.max(1, Atomics.load(slot.shared, cells.cpus) / 100)
    this.#pauseMs = Math.min(maxPauseMs, Math.max(minPauseMs, fillMs))
    this.#activeMs = nowMs
    this.dueMs = nextTick(nowMs, this.#pauseMs)
  }

  isIdle(nowMs: number): boolean {
    return nowMs - this.#activeMs > idleAfterMs
  }

  /**
   * @param ranMs when anything that is watched was last seen to have used processor time.
   * @returns whether it holds too much.
   */
  look(nowMs: number, ranMs: number): boolean {
    const isIdle = this.isIdle(nowMs)
    this.dueMs = nextTick(nowMs, isIdle ? maxIdlePauseMs : this.#pauseMs * Math.max(1, activeCount / activeAtFullRate))
    if (isIdle && ranMs < this.#readMs) return false
    const isFull = nowMs - this.#readMs >= fullLookMs
    if (isFull && !this.#wasActive(nowMs) && isIdle) return false
    this.#open()
    const queues = this.#queues
    if (queues === undefined || !(isFull || queues.mayHold(this.#limitBytes))) return false
    if (nowMs < this.#listAfterMs) return queues.areTooMany(this.#limitBytes)
    const heldBytes = queues.heldBytes(this.#limitBytes)
    const tookMs = performance.now() - nowMs
    this.#listAfterMs = nowMs + tookMs + Math.min(tookMs * pausePerListing, maxPauseMs)
    return heldBytes > this.#limitBytes
  }

  /** Whether it used processor time since this was last asked. */
  #wasActive(nowMs: number): boolean {
    this.#readMs = nowMs
    this.#cpu ??= CpuCounter.open(this.#slot.cpuFile)
    const used = this.#cpu?.read()
    const wasActive = used !== this.#cpuUsed
    this.#cpuUsed = used
    if (wasActive) this.#activeMs = nowMs
    return wasActive
  }

  close(): void {
    this.#queues?.close()
    this.#cpu?.close()
  }

  /** Done here and not by the runner, which may be busy while more is filled. */
  strike(): void {
    Atomics.store(this.#slot.shared, cells.struck, this.run)
    for (let round = 0; round < killRounds; round += 1) {
      const pids = readPids(this.#slot.procsDir).filter((pid) => networkOf(pid) === this.#network)
      if (pids.length === 0) break
      pids.forEach(killPid)
    }
    port?.postMessage({ slot: this.#slot.number, run: this.run } satisfies ThreadMessage)
  }

  /** Does nothing when its first process has ended: everything of a run ends with it. */
  #open(): void {
    if (this.#queues !== undefined) return
    this.#network = networkOf(this.#pid)
    if (this.#network !== undefined) this.#queues = SocketQueues.open(this.#pid)
  }
}

/** At multiples of the pause, so that all watches with the same one are looked at together. */
const nextTick = (nowMs: number, pauseMs: number): number => (Math.floor(nowMs / pauseMs) + 1) * pauseMs

/** @returns `undefined` when the process is gone. */
function networkOf(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`)
  } catch {
    return undefined
  }
}

/** Processor time of a cgroup: the first number in a file, which stays open. */
class CpuCounter {
  readonly #fd: number
  readonly #text = Buffer.alloc(64)

  private constructor(fd: number) {
    this.#fd = fd
  }

  /** @returns `undefined` when the cgroup is gone. */
  static open(path: string): CpuCounter | undefined {
    try {
      return new CpuCounter(openSync(path, 'r'))
    } catch {
      return undefined
    }
  }

  /** In the unit of the file; `undefined` when the cgroup is gone. */
  read(): number | undefined {
    try {
      const text = this.#text.toString('latin1', 0, readSync(this.#fd, this.#text, 0, this.#text.length, 0))
      return Number(/\d+/.exec(text)?.[0])
    } catch {
      return undefined
    }
  }

  close(): void {
    closeSync(this.#fd)
  }
}

const port = parentPort
if (port === null) throw new Error('this module is the program of a thread')
const { cpuFile, state } = workerData as ThreadSettings
/** Of all slots together: one read that says whether those of idle sandboxes are needed. */
const total = CpuCounter.open(cpuFile)
const slots = new Map<number, { slot: SharedSlot; watch: Watch | undefined }>()
let totalUsed: number | undefined
/** At the last round of looks. */
let activeCount = 0
let ranMs = 0
let busyMs = performance.now()

raisePriority()
warmUp()
port.postMessage('ready' satisfies ThreadMessage)
for (;;) {
  for (;;) {
    const received: { message: SlotMessage } | undefined = receiveMessageOnPort(port)
    if (received === undefined) break
    takeMessage(received.message)
  }
  wait(lookAround())
}

function takeMessage(message: SlotMessage): void {
  if ('gone' in message) {
    slots.get(message.gone)?.watch?.close()
    slots.delete(message.gone)
  } else slots.set(message.number, { slot: message, watch: undefined })
}

/** @returns how long nothing needs to be looked at, in milliseconds, and whether a run that begins must say so. */
function lookAround(): { forMs: number; sleeping: boolean } {
  const nowMs = performance.now()
  const used = total?.read()
  if (used === undefined || used !== totalUsed) ranMs = nowMs
  totalUsed = used
  let nextMs = Number.POSITIVE_INFINITY
  let active = 0
  for (const entry of slots.values()) {
    const run = Atomics.load(entry.slot.shared, cells.run)
    if (entry.watch?.run !== run) {
      entry.watch?.close()
      entry.watch = run === 0 ? undefined : new Watch(entry.slot, run, nowMs)
    }
    const { watch } = entry
    if (watch === undefined || Atomics.load(entry.slot.shared, cells.struck) === run) continue
    if (watch.dueMs <= nowMs && watch.look(nowMs, ranMs)) watch.strike()
    if (!watch.isIdle(nowMs)) {
      busyMs = nowMs
      active += 1
    }
    nextMs = Math.min(nextMs, watch.dueMs)
  }
  const sleeping = nowMs - busyMs > sleepAfterMs
  activeCount = active
  return { forMs: Math.min(nextMs - nowMs, sleeping ? Number.POSITIVE_INFINITY : noticedWithinMs), sleeping }
}

/** A run or a message that comes between the last look and the sleep sets the state to `looking`. */
function wait({ forMs, sleeping }: ReturnType<typeof lookAround>): void {
  const expected = Atomics.load(state, 0)
  if (sleeping && expected === states.looking) {
    // One more look, so that what began before this was written is seen.
    Atomics.store(state, 0, states.sleeping)
    return
  }
  if (!sleeping && expected === states.sleeping) Atomics.store(state, 0, states.looking)
  Atomics.wait(state, 0, sleeping ? states.sleeping : states.looking, Math.max(0, forMs))
  if (Atomics.load(state, 0) === states.looking && sleeping) busyMs = performance.now()
}

/** Of this thread alone: setpriority(2) takes the id of a thread, too. Without CAP_SYS_NICE it stays as it is. */
function raisePriority(): void {
  try {
    setPriority(Number(readlinkSync('/proc/thread-self').split('/').at(-1)), -20)
  } catch {}
}

/** Compiles what reads listings, so that the first long one is not the slowest. */
function warmUp(): void {
  const row =
    '   1: 0100007F:1F90 0100007F:A2D4 01 00000010:00000100 00:00000000 00000000  1000        0 0 1 0000000000000000\n'
  const text = `  sl\n${row.repeat(200)}`
  for (let times = 0; times < 20; times += 1) unacceptedBytesIn(text)
}
