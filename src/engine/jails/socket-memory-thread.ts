/** The thread of SocketMemory (socket-memory.ts). It has its own event loop, so that no work of the runner delays it. */
import { closeSync, openSync, readlinkSync, readSync } from 'node:fs'
import { setPriority } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { killPid, readPids } from '../cgroups/cgroup-files.ts'
import { SocketQueues } from './socket-queues.ts'

/** What is sent to the thread: to watch the sockets of a run or a sandbox, or to stop doing so. */
export type WatchOrder = WatchedSockets | { stop: number }

export interface WatchSettings {
  /** Where the kernel counts the processor time of all slots. */
  cpuFile: string
}

export interface WatchedSockets {
  number: number
  /** One of its processes. */
  pid: number
  /** The directory whose `cgroup.procs` lists its processes and `residents`. */
  procsDir: string
  /** Processes there that are not its own. */
  residents: readonly number[]
  /** Where the kernel counts their processor time. */
  cpuFile: string
  /** How many processors it can use at once. */
  cpus: number
  limitBytes: number
  /** One number, set to 1 before its processes are killed. */
  struck: Int32Array
}

/** Of a thread to the runner: that it is there, or the number of a watch whose processes it has killed. */
export type WatchReport = 'ready' | number

/** What a program fills in a millisecond of processor time is about 1 MiB. Twice that is expected. */
const filledPerMs = 2 * 1024 * 1024
/** Between two looks at what uses processor time. */
const minPauseMs = 2
const maxPauseMs = 20
/** Between two looks at the processor time of what used none. */
const maxIdlePauseMs = 25
/** A kernel counts processor time at its clock ticks, at most 10 ms apart. What used none for longer than this is idle. */
const idleAfterMs = 40
/** Processes that a forking program can add while they are being killed. */
const killRounds = 3

class Watch {
  readonly target: WatchedSockets
  /** When it is looked at next. */
  dueMs: number
  readonly #pauseMs: number
  #queues: SocketQueues | undefined
  #cpu: CpuCounter | undefined
  #cpuUsed: number | undefined
  #readMs = 0
  #activeMs: number

  constructor(target: WatchedSockets, nowMs: number) {
    this.target = target
    const fillMs = target.limitBytes / filledPerMs / Math.max(1, target.cpus)
    this.#pauseMs = Math.min(maxPauseMs, Math.max(minPauseMs, fillMs))
    this.#activeMs = nowMs
    this.dueMs = nextTick(nowMs, this.#pauseMs)
  }

  /** @param ranMs when anything that is watched was last seen to have used processor time. */
  look(nowMs: number, ranMs: number): void {
    const isIdle = nowMs - this.#activeMs > idleAfterMs
    this.dueMs = nextTick(nowMs, isIdle ? Math.min(maxIdlePauseMs, this.#pauseMs * 4) : this.#pauseMs)
    if (isIdle && ranMs < this.#readMs) return
    this.#readMs = nowMs
    this.#cpu ??= CpuCounter.open(this.target.cpuFile)
    const used = this.#cpu?.read()
    if (used !== this.#cpuUsed) this.#activeMs = nowMs
    else if (isIdle) return
    this.#cpuUsed = used
    const { limitBytes } = this.target
    if ((this.#open()?.heldBytes(limitBytes) ?? 0) > limitBytes) strike(this)
  }

  close(): void {
    this.#queues?.close()
    this.#cpu?.close()
  }

  kill(): void {
    for (let round = 0; round < killRounds; round += 1) {
      const pids = this.#pids()
      if (pids.length === 0) return
      pids.forEach(killPid)
    }
  }

  /** @returns `undefined` when every process that was asked has just ended. */
  #open(): SocketQueues | undefined {
    this.#queues ??= SocketQueues.open(this.target.pid)
    if (this.#queues !== undefined) return this.#queues
    // All processes of a run share one network namespace, so any of them answers for all.
    for (const pid of this.#pids().slice(0, 8)) {
      this.#queues = SocketQueues.open(pid)
      if (this.#queues !== undefined) break
    }
    return this.#queues
  }

  #pids(): number[] {
    const { procsDir, residents } = this.target
    return readPids(procsDir).filter((pid) => !residents.includes(pid))
  }
}

/** At multiples of the pause, so that all watches with the same one are looked at together. */
const nextTick = (nowMs: number, pauseMs: number): number => (Math.floor(nowMs / pauseMs) + 1) * pauseMs

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
      const length = readSync(this.#fd, this.#text, 0, this.#text.length, 0)
      return Number(/\d+/.exec(this.#text.toString('latin1', 0, length))?.[0])
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
/** Of all slots together: one read that says whether those of idle sandboxes are needed. */
const total = CpuCounter.open((workerData as WatchSettings).cpuFile)
const watches = new Map<number, Watch>()
let timer: NodeJS.Timeout | undefined
let timerAtMs = Number.POSITIVE_INFINITY
let totalUsed: number | undefined
let ranMs = 0

raisePriority()
port.on('message', (order: WatchOrder) => {
  if ('stop' in order) {
    forget(order.stop)
    return
  }
  const watch = new Watch(order, performance.now())
  watches.set(order.number, watch)
  wakeAt(watch.dueMs)
})
port.postMessage('ready' satisfies WatchReport)

function lookAround(): void {
  timerAtMs = Number.POSITIVE_INFINITY
  const nowMs = performance.now()
  const used = total?.read()
  if (used === undefined || used !== totalUsed) ranMs = nowMs
  totalUsed = used
  for (const watch of watches.values()) if (watch.dueMs <= nowMs) watch.look(nowMs, ranMs)
  for (const { dueMs } of watches.values()) wakeAt(dueMs)
}

function wakeAt(ms: number): void {
  if (ms >= timerAtMs) return
  clearTimeout(timer)
  timerAtMs = ms
  timer = setTimeout(lookAround, Math.max(0, ms - performance.now()))
}

/** Killed here and not by the runner, which may be busy while more is filled. */
function strike(watch: Watch): void {
  Atomics.store(watch.target.struck, 0, 1)
  watch.kill()
  port?.postMessage(watch.target.number satisfies WatchReport)
  forget(watch.target.number)
}

function forget(number: number): void {
  watches.get(number)?.close()
  watches.delete(number)
}

/** Of this thread alone: setpriority(2) takes the id of a thread, too. Without CAP_SYS_NICE it stays as it is. */
function raisePriority(): void {
  try {
    setPriority(Number(readlinkSync('/proc/thread-self').split('/').at(-1)), -20)
  } catch {}
}
