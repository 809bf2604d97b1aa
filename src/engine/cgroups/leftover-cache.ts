import { readKeyed } from './cgroup-files.ts'

/** Less than this of earlier runs is not looked for: a run without files leaves one or two MiB. */
const ignoredBytes = 8 * 1024 * 1024

/** Returns the page cache of a memory cgroup, in bytes. Both versions name it alike. */
const fileCacheBytes = (dir: string): number =>
  readKeyed(dir, 'memory.stat', 'inactive_file') + readKeyed(dir, 'memory.stat', 'active_file')

/**
 * The page cache that earlier runs left in the cgroup of runs: pages of files that they read or wrote stay charged to it
 * until the kernel needs the memory. Runs without files of this size cost no system call.
 */
export class LeftoverCache {
  readonly #dir: string
  #usedBytes = 0
  #leftBytes = 0

  constructor(dir: string) {
    this.#dir = dir
  }

  /** @param usedBytes what the cgroup uses after a run. */
  endRun(usedBytes: number): void {
    this.#usedBytes = usedBytes
  }

  beginRun(): void {
    this.#leftBytes = this.#usedBytes > ignoredBytes ? fileCacheBytes(this.#dir) : 0
  }

  /** Returns a peak of the cgroup without what earlier runs had left in it and the kernel still has. */
  without(peakBytes: number): number {
    return this.#leftBytes === 0
      ? peakBytes
      : Math.max(peakBytes - Math.min(this.#leftBytes, fileCacheBytes(this.#dir)), 0)
  }
}
