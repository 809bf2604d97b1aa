/** Image files: creating, checking, growing and trimming them. They must not be mounted. */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { link, mkdir, rename, rm, truncate } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { monotonicMs } from '../base/clock.ts'
import { Refusal } from '../base/errors.ts'
import type { Quota } from '../base/run.ts'
import { codeOf, kernel } from '../kernel/kernel.ts'
import { Descriptor } from './descriptor.ts'
import { busy, type FilesystemId, unknown } from './filesystem-id.ts'
import { SpareDisks } from './spare-disks.ts'
import { blockBytes, emptyJournal, readSuperblock } from './superblock.ts'

const execute = promisify(execFile)

/** The smallest journal that ext4 supports. An unused filesystem occupies no space for it. */
const journalBytes = 1024 * blockBytes
const inodeBytes = 256
/** Inodes that mkfs creates in addition to the root directory. */
const inodesOfOurs = 11
/** Free blocks that ext4 keeps for delayed writes: fs/ext4/super.c, ext4_calculate_resv_clusters. */
const keptBack = (bytes: number): number => Math.min(bytes / 50, 4096 * blockBytes)
/** Bitmaps, group descriptors and the index blocks of large files. */
const bookkeeping = (bytes: number): number => 64 * 1024 + bytes / 1024

/** Returns the size of an image that provides a quota in addition to the metadata of ext4, in bytes. */
export function diskBytesFor(quota: Quota): number {
  const own = journalBytes + (quota.inodes + inodesOfOurs) * inodeBytes
  const held = quota.bytes + own + bookkeeping(quota.bytes + own)
  return Math.ceil((held + keptBack(held * 1.02)) / blockBytes) * blockBytes
}

/** The environment of the programs that are started. */
const env = { PATH: '/usr/sbin:/sbin:/usr/bin:/bin', LC_ALL: 'C' }
/** Time limit of a program, in milliseconds; enough to check a large and full filesystem. */
const programTimeoutMs = 10 * 60_000

async function run(program: string, ...args: string[]): Promise<void> {
  await execute(program, args, { env, timeout: programTimeoutMs, killSignal: 'SIGKILL' })
}

/** Creates an empty filesystem in a new sparse file. */
async function format(path: string, quota: Quota): Promise<void> {
  await using image = await Descriptor.open(path, constants.O_CREAT | constants.O_EXCL | constants.O_RDWR)
  await truncate(path, diskBytesFor(quota))
  const size = ['-b', String(blockBytes), '-I', String(inodeBytes), '-N', String(quota.inodes + inodesOfOurs)]
  // meta_bg permits growing to any size; no blocks are reserved for root; the user of jails owns the root directory.
  const shape = [
    '-m',
    '0',
    '-J',
    `size=${journalBytes / 1024 / 1024}`,
    '-O',
    'meta_bg,^resize_inode',
    '-e',
    'remount-ro',
  ]
  const holes =
    'lazy_itable_init=1,lazy_journal_init=1,nodiscard,assume_storage_prezeroed=1,packed_meta_blocks=1,root_owner=1000:1000'
  await run('mkfs.ext4', '-q', '-F', ...size, ...shape, '-E', holes, path)
  await kernel.syncDescriptor(image.fd)
}

/** Syncs a directory, so that created, renamed and removed entries are durable. */
export async function syncDirectory(path: string): Promise<void> {
  await using directory = await Descriptor.open(path, constants.O_RDONLY | constants.O_DIRECTORY)
  await kernel.syncDescriptor(directory.fd)
}

/** Creates a directory with its parents durably: a power cut removes none of them again. */
export async function makeDirectory(path: string): Promise<void> {
  const first = await mkdir(path, { recursive: true, mode: 0o700 })
  if (first === undefined) return
  for (let at = path; at.length >= first.length; at = dirname(at)) await syncDirectory(dirname(at))
}

const exists = async (path: string): Promise<boolean> => {
  try {
    await using _ = await Descriptor.open(path, constants.O_RDONLY)
    return true
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return false
    throw error
  }
}

/** Creates images by copying a template for each quota, which is ten times as fast as formatting. */
export class DiskMaker {
  readonly #home: string
  readonly #templates = new Map<string, Promise<string>>()
  readonly #spares = new SpareDisks((template) => this.#copyOf(template))

  /** @param home directory of the storage. Only this class uses `incoming` and `templates` below it. */
  private constructor(home: string) {
    this.#home = home
  }

  /** Removes incomplete images after a crash. */
  static async open(home: string): Promise<DiskMaker> {
    await rm(join(home, 'incoming'), { recursive: true, force: true })
    for (const part of ['incoming', 'templates']) await mkdir(join(home, part), { recursive: true, mode: 0o700 })
    return new DiskMaker(home)
  }

  /** Creates an image for a quota, unless the path exists. @returns whether this call created it. */
  async create(path: string, quota: Quota): Promise<boolean> {
    if (await exists(path)) return false
    const template = await this.#template(quota)
    const spare = this.#spares.take(template)
    return spare === undefined ? this.#copy(template, path) : this.#publish(spare, path)
  }

  /** Waits until nothing is copied that no caller waits for. */
  close(): Promise<void> {
    return this.#spares.close()
  }

  /** Copies an image. @param from locked by the caller. @returns `false` if the target exists. */
  async fork(from: string, path: string): Promise<boolean> {
    return (await exists(path)) ? false : this.#copy(from, path)
  }

  /** Copies an image that is mounted and that nothing writes to. It is not synced, since no crash has to leave it. */
  async snapshot(from: string, path: string): Promise<void> {
    await this.#publish(await this.#copyOf(from, false), path)
  }

  /** Makes a complete copy appear under its name durably, or nothing. */
  async #copy(from: string, path: string): Promise<boolean> {
    return this.#publish(await this.#copyOf(from), path)
  }

  /** Makes a copy under a name in `incoming`, and syncs it. */
  async #copyOf(from: string, isDurable = true): Promise<string> {
    const incoming = join(this.#home, 'incoming', randomBytes(12).toString('hex'))
    try {
      await using source = await Descriptor.open(from, constants.O_RDONLY)
      await using copy = await Descriptor.open(incoming, constants.O_CREAT | constants.O_EXCL | constants.O_RDWR)
      await kernel.copySparse(source.fd, copy.fd)
      if (isDurable) await kernel.syncDescriptor(copy.fd)
      return incoming
    } catch (error) {
      await rm(incoming, { force: true })
      throw error
    }
  }

  /** Gives a complete image its name, and removes its name in `incoming`. @returns `false` if the target exists. */
  async #publish(incoming: string, path: string): Promise<boolean> {
    const directory = dirname(path)
    try {
      await makeDirectory(directory)
      await link(incoming, path)
      await syncDirectory(directory)
      return true
    } catch (error) {
      if (codeOf(error) === 'EEXIST') return false
      throw error
    } finally {
      await rm(incoming, { force: true })
    }
  }

  async #template(quota: Quota): Promise<string> {
    const name = `${quota.bytes}-${quota.inodes}`
    const known = this.#templates.get(name) ?? this.#makeTemplate(name, quota)
    this.#templates.set(name, known)
    try {
      return await known
    } catch (error) {
      this.#templates.delete(name)
      throw error
    }
  }

  /** Creates the template once per start of the runner, so that changes of `format` or mkfs take effect. */
  async #makeTemplate(name: string, quota: Quota): Promise<string> {
    const path = join(this.#home, 'templates', `${name}.ext4`)
    const incoming = join(this.#home, 'incoming', randomBytes(12).toString('hex'))
    await format(incoming, quota)
    await rename(incoming, path)
    return path
  }
}

const lockPollMs = 5

/**
 * Opens an image that is not mounted. Its lock is held until the descriptor and all loop devices of the image are closed.
 * @param patienceMs how long to wait for the kernel to finish an unmount, in milliseconds.
 * @throws Refusal thread_unknown or volume_unknown if it does not exist; thread_busy or volume_busy if it remains in use.
 */
export async function openLockedDisk(path: string, patienceMs: number, id: FilesystemId): Promise<Descriptor> {
  const deadlineMs = monotonicMs() + patienceMs
  const image = await Descriptor.open(path, constants.O_RDWR | constants.O_NOFOLLOW).catch((error) => {
    throw codeOf(error) === 'ENOENT' ? unknown(id) : error
  })
  for (;;) {
    try {
      await kernel.lockDisk(image.fd)
      if ((await image.stat()).nlink > 0) return image
      await image.close() // Erased meanwhile.
      throw unknown(id)
    } catch (error) {
      if (codeOf(error) === 'EAGAIN' && monotonicMs() < deadlineMs) {
        await sleep(lockPollMs)
        continue
      }
      await image.close()
      throw codeOf(error) === 'EAGAIN' ? busy(id) : error
    }
  }
}

const nameOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1).replace(/\.ext4$/, '')

/**
 * Repairs an image: first with safe repairs only, then with all.
 * @throws Error if it cannot be repaired.
 */
export async function check(path: string): Promise<void> {
  for (const how of ['-p', '-y']) {
    const exit = await run('e2fsck', how, '-f', path).then(
      () => 0,
      (error: unknown) => {
        const code: unknown = Reflect.get(error as object, 'code')
        if (typeof code !== 'number') throw error
        return code
      },
    )
    if (exit < 4) return // e2fsck(8): 1 and 2 mean that errors were corrected.
  }
  throw new Error(`the filesystem ${nameOf(path)} is damaged beyond repair`)
}

/**
 * Enlarges an image to a larger quota, in bytes; the number of inodes grows in proportion. After a crash in the middle,
 * `hasErrors` is set and the next mount repairs the image.
 * @param image locked by the caller.
 */
export async function grow(path: string, image: Descriptor, quota: Quota): Promise<void> {
  const before = await readSuperblock(image)
  if (!before || before.needsRecovery || before.hasErrors) await check(path)
  const { size } = await image.stat()
  const wanted = diskBytesFor(quota)
  if (wanted < size) throw new Refusal('invalid_argument', { field: 'size', problem: 'is smaller than it is now' })
  await truncate(path, wanted)
  await run('resize2fs', '-f', path)
  await kernel.syncDescriptor(image.fd)
}

/** Frees the disk space of the journal of a cleanly unmounted filesystem. @param image locked by the caller. */
export async function shrinkIdle(image: Descriptor): Promise<void> {
  const superblock = await readSuperblock(image)
  if (!superblock || superblock.needsRecovery) return
  const journal = await emptyJournal(image)
  if (journal) await kernel.punchHole(image.fd, journal.offset + blockBytes, journal.bytes - blockBytes)
}
