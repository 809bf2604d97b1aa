import { closeSync, existsSync, openSync, readFileSync, write, writeFileSync } from 'node:fs'
import { rmdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/** Time limit for a cgroup to become empty after all its processes were killed, in milliseconds. */
const emptyWithinMs = 3_000

export const writeControl = (dir: string, file: string, value: string | number): void =>
  writeFileSync(join(dir, file), String(value))

/** Writes a control file on a thread of the pool. Used only for files whose write can take long. */
export async function writeControlSlowly(dir: string, file: string, value: string | number): Promise<void> {
  const fd = openSync(join(dir, file), 'w')
  try {
    await new Promise<void>((resolve, reject) => {
      write(fd, String(value), (error) => (error ? reject(error) : resolve()))
    })
  } finally {
    closeSync(fd)
  }
}

/** The same for a file that some kernels do not have. */
export async function writeControlSlowlyIfThere(dir: string, file: string, value: string): Promise<void> {
  if (existsSync(join(dir, file))) await writeControlSlowly(dir, file, value)
}

/** For a request that the kernel may fulfil in part. */
export function ignoreIncomplete(error: unknown): void {
  const { code } = error as NodeJS.ErrnoException
  if (code !== 'EAGAIN' && code !== 'EBUSY' && code !== 'EINTR' && !isGone(error)) throw error
}

/** Time limit for the kernel to do what a control file requests, in milliseconds. */
const doneWithinMs = 2_000

/** Writes a control file, repeatedly, until the kernel has done it. @throws Error after 2 s. */
export async function writeControlUntil(
  dir: string,
  file: string,
  value: string | number,
  isDone: () => boolean,
): Promise<void> {
  const deadline = performance.now() + doneWithinMs
  for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, 50)) {
    writeControl(dir, file, value)
    if (isDone()) return
    if (performance.now() > deadline) throw new Error(`${dir} did not accept ${file} ${value} in time`)
    await sleep(pauseMs)
  }
}

/** Writes a control file that some kernels do not have. @returns whether it exists. */
export function writeControlIfThere(dir: string, file: string, value: string | number): boolean {
  try {
    // Never creates: on a cgroup file system that fails anyway, with a misleading error.
    writeFileSync(join(dir, file), String(value), { flag: 'r+' })
    return true
  } catch (error) {
    if (isGone(error)) return false
    throw error
  }
}

export const readControl = (dir: string, file: string): string => readFileSync(join(dir, file), 'utf8')

export const readNumber = (dir: string, file: string): number => Number(readControl(dir, file))

/** Returns the number after `key` in a file of `key value` lines; 0 if the key is missing. */
export function readKeyed(dir: string, file: string, key: string): number {
  for (const line of readControl(dir, file).split('\n'))
    if (line.startsWith(`${key} `)) return Number(line.slice(key.length + 1))
  return 0
}

/** Returns the shared memory of a memory cgroup, in bytes. It is never more than what the cgroup uses. */
export const sharedBytes = (dir: string): number => readKeyed(dir, 'memory.stat', 'shmem')

/** Returns the processes of one cgroup, or its threads; none if it does not exist. */
export function readPids(dir: string, file: 'cgroup.procs' | 'cgroup.threads' | 'tasks' = 'cgroup.procs'): number[] {
  try {
    // A process outside our own pid namespace shows as 0.
    return readControl(dir, file).split('\n').filter(Boolean).map(Number)
  } catch (error) {
    if (isGone(error)) return []
    throw error
  }
}

/** Sends SIGKILL. Ignores processes that do not exist. */
export function killPid(pid: number): void {
  if (pid <= 1) return
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/**
 * Removes cgroup directories, deepest first, and waits until the kernel has released killed processes. Each removal can wait
 * for the kernel for milliseconds, so it does not block the process: a hundred slots may end at once.
 */
export async function removeWhenEmpty(dirs: readonly string[]): Promise<void> {
  const deadline = performance.now() + emptyWithinMs
  for (const dir of dirs) {
    for (let pauseMs = 1; !(await removed(dir)); pauseMs = Math.min(pauseMs * 2, 50)) {
      if (performance.now() > deadline) throw new Error(`${dir} still holds ${readPids(dir).length} processes`)
      await sleep(pauseMs)
    }
  }
}

async function removed(dir: string): Promise<boolean> {
  try {
    await rmdir(dir)
    return true
  } catch (error) {
    if (isGone(error)) return true
    if ((error as NodeJS.ErrnoException).code === 'EBUSY') return false
    throw error
  }
}

function isGone(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException
  return code === 'ENOENT' || code === 'ENODEV'
}
