import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { constants } from 'node:fs'
import { mkdir, readdir, readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { codeOf, kernel } from '../kernel/kernel.ts'
import { Descriptor } from './descriptor.ts'

/** How often an image is tried whose mount begins or ends meanwhile, and the pause between two attempts. */
const attempts = 50
const pauseMs = 100

/**
 * Copies the image of a thread or volume as of one moment. One that is mounted is frozen meanwhile: programs can read its
 * files, and their writes wait. One that is not mounted cannot be mounted until the copy is complete.
 * @returns `false` if the image was deleted.
 * @throws Error if it cannot be read, locked or frozen.
 */
export async function copyImage(from: string, to: string): Promise<boolean> {
  await mkdir(dirname(to), { recursive: true, mode: 0o700 })
  for (let attempt = 1; ; attempt++) {
    const image = await openImage(from)
    if (image === undefined) return false
    await using source = image
    if (await isLocked(source)) {
      if ((await source.stat()).nlink === 0) return false
      await copy(source, to)
      return true
    }
    const frozen = await Freeze.begin(from)
    if (frozen !== undefined) {
      try {
        await copy(source, to)
      } finally {
        await frozen.end()
      }
      return true
    }
    if (attempt === attempts) throw new Error(`${from} is in use, but its mount was not found`)
    await sleep(pauseMs)
  }
}

async function openImage(path: string): Promise<Descriptor | undefined> {
  try {
    return await Descriptor.open(path, constants.O_RDWR | constants.O_NOFOLLOW)
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined
    throw error
  }
}

/** Takes the lock that the runner takes before it mounts an image. */
async function isLocked(image: Descriptor): Promise<boolean> {
  try {
    await kernel.lockDisk(image.fd)
    return true
  } catch (error) {
    if (codeOf(error) === 'EAGAIN') return false
    throw error
  }
}

async function copy(source: Descriptor, to: string): Promise<void> {
  await using target = await Descriptor.open(to, constants.O_CREAT | constants.O_TRUNC | constants.O_RDWR)
  await kernel.copySparse(source.fd, target.fd)
  await kernel.syncDescriptor(target.fd)
}

/** A filesystem that is frozen. It is thawed when this process ends in any way: the helper ends with its input. */
class Freeze {
  readonly #helper: ChildProcess

  private constructor(helper: ChildProcess) {
    this.#helper = helper
  }

  /** Freezes the filesystem of a mounted image, in the mount namespace of the runner; `undefined` if it is not mounted. */
  static async begin(image: string): Promise<Freeze | undefined> {
    const mount = await mountOf(image)
    if (mount === undefined) return undefined
    const script = 'fsfreeze --freeze "$1" && echo frozen && cat && fsfreeze --unfreeze "$1"'
    const helper = spawn('nsenter', [`--mount=/proc/${mount.pid}/ns/mnt`, 'sh', '-c', script, 'sh', mount.path], {
      stdio: ['pipe', 'pipe', 'ignore'],
      // Not in the process group of the terminal: an interrupt must not end it before it has thawed.
      detached: true,
    })
    helper.stdin?.on('error', () => undefined)
    const first = await Promise.race([once(helper.stdout!, 'data'), once(helper, 'close')])
    return String(first[0]).startsWith('frozen') ? new Freeze(helper) : undefined
  }

  /** Thaws it. @throws Error if that failed. */
  async end(): Promise<void> {
    const closed = once(this.#helper, 'close')
    this.#helper.stdin?.end()
    const [code] = (await closed) as [number | null]
    if (code !== 0) throw new Error(`fsfreeze could not thaw a filesystem (exit code ${code})`)
  }
}

interface Mount {
  /** A process in whose mount namespace the path is. */
  pid: string
  path: string
}

async function mountOf(image: string): Promise<Mount | undefined> {
  const device = await deviceOf(image)
  if (device === undefined) return undefined
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    for (const line of (await readIfThere(`/proc/${pid}/mountinfo`)).split('\n')) {
      const [, , numbers, root, path] = line.split(' ')
      if (numbers === device && root === '/' && path !== undefined) return { pid, path: path.replaceAll('\\040', ' ') }
    }
  }
  return undefined
}

/** Returns the loop device of an image, as `major:minor`. */
async function deviceOf(image: string): Promise<string | undefined> {
  for (const name of (await readdir('/sys/block')).filter((block) => block.startsWith('loop'))) {
    const file = (await readIfThere(`/sys/block/${name}/loop/backing_file`)).trimEnd()
    if (file === image) return (await readIfThere(`/sys/block/${name}/dev`)).trim()
  }
  return undefined
}

/** Returns the content of a file of the kernel; empty where its process or device has gone. */
const readIfThere = (path: string): Promise<string> => readFile(path, 'utf8').catch(() => '')
