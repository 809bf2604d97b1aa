import { readFileSync, readlinkSync } from 'node:fs'
import { monotonicMs } from '../../base/clock.ts'

/** The processes of one slot. */
export interface Neighbor {
  /** Its threads, by their number on the host. */
  runTasks(): number[]
  /** Suspends them, or lets them continue. Does not wait until the kernel has done it. */
  readonly freezer: { hold(isHeld: boolean): void }
}

/** What mounting takes on an idle machine. If it takes longer, the reason is looked for, and then again and again. */
const patienceMs = 10
const lookEveryMs = 15
/** Threads that one look examines, in all slots together: about a millisecond. */
const tasksPerLook = 64
/** A slot can be suspended for so long at once, and for four fifths of the time. */
const holdMaxMs = 200
const creditPerFreeMs = 4
/** Less is not worth a change of its state. */
const creditMinMs = 50
/** How long a slot that was found is suspended without being looked at. Each further time doubles it. */
const knownMinMs = 1_000
const knownMaxMs = 64_000

interface Watched {
  isHeld: boolean
  /** For how long it may be suspended, as of `changedMs`. */
  creditMs: number
  changedMs: number
  knownForMs: number
  knownUntilMs: number
}

/**
 * Lets jails be mounted while code reads lists of mounts. The kernel has one lock for all mounts of the machine; each read
 * of `/proc/PID/mountinfo` and the like shares it, and one mount waits until all waiting readers had their turn. So a slot
 * whose threads wait in such a read is suspended while something else is mounted, in the whole for at most four fifths of
 * the time. No program fails by this.
 */
export class MountTurns {
  readonly #neighbors = new Map<Neighbor, Watched>()
  readonly #turns = new Set<symbol>()
  #timer: NodeJS.Timeout | undefined

  /** Watches a slot in which code runs. @returns what ends that, and lets it continue. */
  watch(neighbor: Neighbor): () => void {
    const changedMs = monotonicMs()
    const watched = { isHeld: false, creditMs: holdMaxMs, changedMs, knownForMs: knownMinMs, knownUntilMs: 0 }
    this.#neighbors.set(neighbor, watched)
    return () => {
      if (this.#neighbors.delete(neighbor) && watched.isHeld) neighbor.freezer.hold(false)
    }
  }

  /** To be called before something is mounted. @returns what says that it was; further calls do nothing. */
  begin(): () => void {
    const turn = Symbol()
    this.#turns.add(turn)
    this.#holdKnown(monotonicMs())
    this.#timer ??= setTimeout(() => this.#look(), patienceMs)
    return () => {
      if (!this.#turns.delete(turn) || this.#turns.size > 0) return
      clearTimeout(this.#timer)
      this.#timer = undefined
      this.#releaseAll()
    }
  }

  /** The same around a piece of work. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    const end = this.begin()
    try {
      return await work()
    } finally {
      end()
    }
  }

  #look(): void {
    const nowMs = monotonicMs()
    const others = [...this.#neighbors].filter(([, { isHeld, knownUntilMs }]) => !isHeld && knownUntilMs < nowMs)
    const share = Math.ceil(tasksPerLook / Math.max(1, others.length))
    for (const [neighbor, watched] of sample(others, tasksPerLook)) {
      if (!sample(neighbor.runTasks(), share).some(readsMounts)) continue
      watched.knownUntilMs = nowMs + watched.knownForMs
      watched.knownForMs = Math.min(watched.knownForMs * 2, knownMaxMs)
    }
    this.#holdKnown(nowMs)
    this.#timer = setTimeout(() => this.#look(), lookEveryMs)
  }

  #holdKnown(nowMs: number): void {
    for (const [neighbor, watched] of this.#neighbors) {
      if (watched.knownUntilMs < nowMs && !watched.isHeld) continue
      count(watched, nowMs)
      if (watched.isHeld && watched.creditMs <= 0) change(neighbor, watched, false)
      else if (!watched.isHeld && watched.creditMs >= creditMinMs) change(neighbor, watched, true)
    }
  }

  #releaseAll(): void {
    const nowMs = monotonicMs()
    for (const [neighbor, watched] of this.#neighbors) {
      if (!watched.isHeld) continue
      count(watched, nowMs)
      change(neighbor, watched, false)
    }
  }
}

function change(neighbor: Neighbor, watched: Watched, isHeld: boolean): void {
  watched.isHeld = isHeld
  neighbor.freezer.hold(isHeld)
}

/** Counts the time since the last change. */
function count(watched: Watched, nowMs: number): void {
  const passedMs = nowMs - watched.changedMs
  watched.changedMs = nowMs
  watched.creditMs = watched.isHeld
    ? watched.creditMs - passedMs
    : Math.min(holdMaxMs, watched.creditMs + passedMs * creditPerFreeMs)
}

/** Some of them, chosen at random, so that no order hides the one that matters. */
function sample<T>(all: readonly T[], most: number): readonly T[] {
  if (all.length <= most) return all
  return Array.from({ length: most }, () => all[Math.floor(Math.random() * all.length)]!)
}

/** The first descriptors that a program opens. */
const firstDescriptors = [3, 4, 5, 6, 7, 8]

/** Returns whether a thread waits in a system call on a list of mounts, or runs and has one among its first descriptors. */
export function readsMounts(task: number): boolean {
  try {
    // https://man7.org/linux/man-pages/man5/proc_pid_syscall.5.html: its number and its arguments; the descriptor is the
    // first argument of all that read, and the second of sendfile. A thread that has the lock runs, or waits for a processor.
    const text = readFileSync(`/proc/${task}/syscall`, 'latin1')
    if (text === 'running\n') return firstDescriptors.some((fd) => isMountList(task, fd))
    const [, ...words] = text.split(' ')
    return words.slice(0, 2).some((word) => Number(word) < 2 ** 20 && isMountList(task, Number(word)))
  } catch {
    return false // It has ended.
  }
}

function isMountList(task: number, fd: number): boolean {
  try {
    return /^\/.*\d\/(mountinfo|mounts|mountstats)$/.test(readlinkSync(`/proc/${task}/fd/${fd}`))
  } catch {
    return false
  }
}
