import { constants } from 'node:fs'
import { mkdir, readdir, rm, rmdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { diskRefusal, diskRefusalOf } from '../base/disk-errors.ts'
import { Refusal } from '../base/errors.ts'
import type { Quota } from '../base/run.ts'
import { codeOf, kernel } from '../kernel/kernel.ts'
import { Descriptor } from './descriptor.ts'
import { DiskRoom } from './disk-room.ts'
import {
  check,
  DiskMaker,
  diskBytesFor,
  grow,
  makeDirectory,
  openLockedDisk,
  shrinkIdle,
  syncDirectory,
} from './disks.ts'
import { type FilesystemId, isName } from './filesystem-id.ts'
import { readSuperblock } from './superblock.ts'
import { removeTemporaryNames } from './temporary-names.ts'

export interface FilesystemsSettings {
  /** Where images are kept. */
  home: string
  /** Where they are mounted; in a mount namespace of our own. */
  mountsDir: string
  /** Free space on the disk of `home` that is kept for the database and for other organizations; see `DiskRoom`. */
  reserveBytes: number
  /** How long to wait for an earlier mount of the same image to end in the kernel: a millisecond, or seconds under load. */
  lockPatienceMs: number
}

export interface Usage {
  /** As a program inside sees them; what users can still write is `freeBytes`. */
  totalBytes: number
  freeBytes: number
  usedBytes: number
  totalInodes: number
  freeInodes: number
}

/** A mounted filesystem. */
export interface Mounted {
  readonly id: FilesystemId
  /** The path where it is mounted, chosen by this module. */
  readonly path: string
  /** Of its root directory: everything is reached from here. */
  readonly root: Descriptor
  /** Its block device, as `major:minor`. */
  readonly device: string
  /** Whether it was found as a crash had left it. */
  readonly recovered: boolean
}

/** What the kernel answers at damage: EUCLEAN and EBADMSG are its EFSCORRUPTED and EFSBADCRC. */
const damage = new Set(['EUCLEAN', 'EBADMSG', 'EINVAL', 'EIO'])

/**
 * Threads and volumes as filesystems of their own: sparse ext4 images, mounted on loop devices. A limit on bytes and
 * files is the size of the filesystem, so the kernel enforces it.
 *
 * After a crash of this process nothing stays mounted: the mounts end with the mount namespace, the loop devices with the
 * mounts. After a power cut an image is as its last flush left it: what a program synced is there, what it wrote in the
 * last seconds before may not be, and the journal makes the rest whole at the next mount. Growing is done unmounted and
 * has no limit but ext4's own; a crash in the middle of it leads to a check at the next mount.
 */
export class Filesystems {
  readonly #settings: FilesystemsSettings
  readonly #maker: DiskMaker
  /** The room on the disk of `home`. */
  readonly room: DiskRoom
  #mountNumber = 0

  private constructor(settings: FilesystemsSettings, maker: DiskMaker) {
    this.#settings = settings
    this.#maker = maker
    this.room = new DiskRoom(settings.home, settings.reserveBytes)
  }

  /** Removes what a crash left: half-made images, earlier states of disks, mount points. */
  static async open(settings: FilesystemsSettings): Promise<Filesystems> {
    await makeDirectory(settings.home)
    await rm(join(settings.home, 'states'), { recursive: true, force: true })
    await mkdir(settings.mountsDir, { recursive: true, mode: 0o700 })
    for (const left of await readdir(settings.mountsDir)) await rmdir(join(settings.mountsDir, left))
    return new Filesystems(settings, await DiskMaker.open(settings.home))
  }

  /** Ends work that no caller waits for. Mounted filesystems stay so. */
  close(): Promise<void> {
    return this.#maker.close()
  }

  /** Makes the filesystem unless it exists. @returns whether this call made it; of many at once, one does. */
  async create(id: FilesystemId, quota: Quota): Promise<boolean> {
    const path = this.#pathOf(id)
    return !(await this.exists(id)) && this.#orExplained(id, () => this.#maker.create(path, quota))
  }

  async exists(id: FilesystemId): Promise<boolean> {
    return (await this.allocatedBytes(id)) !== undefined
  }

  /** Bytes that it takes on the disk; `undefined` if it does not exist. */
  async allocatedBytes(id: FilesystemId): Promise<number | undefined> {
    try {
      return (await stat(this.#pathOf(id))).blocks * 512
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return undefined
      throw error
    }
  }

  /**
   * Mounts it: nosuid, nodev, noatime, read-only after the first error. The journal of a crashed one is replayed; one
   * with errors is checked first.
   * @throws Refusal thread_unknown, thread_busy (mounted by someone else), disk_unavailable.
   */
  async mount(id: FilesystemId): Promise<Mounted> {
    try {
      return await this.#mount(id)
    } catch (error) {
      throw await this.#explained(error)
    }
  }

  async #mount(id: FilesystemId): Promise<Mounted> {
    const imagePath = this.#pathOf(id)
    await using image = await this.#locked(id)
    const superblock = await readSuperblock(image)
    if (!superblock || superblock.hasErrors) await this.#check(imagePath)
    this.#mountNumber += 1
    const path = join(this.#settings.mountsDir, String(this.#mountNumber))
    await mkdir(path, { mode: 0o700 })
    try {
      await mountChecked(image, path, () => this.#check(imagePath))
      const root = await Descriptor.open(path, constants.O_RDONLY | constants.O_DIRECTORY)
      await dropLeftovers(root).catch(async (error) => {
        await root.close()
        await kernel.unmount(Buffer.from(path), 0)
        throw error
      })
      const device = deviceNumbers((await root.stat()).dev)
      return { id, path, root, device, recovered: superblock?.needsRecovery !== false || superblock.hasErrors }
    } catch (error) {
      await rmdir(path)
      throw error
    }
  }

  /** A repair that runs out of space in the middle does more damage than it repairs. */
  async #check(imagePath: string): Promise<void> {
    if ((await this.room.look()) === 'exhausted') {
      throw new Refusal('disk_unavailable', { problem: 'its disk is too full to repair the filesystem' })
    }
    await check(imagePath)
  }

  /**
   * Gives free blocks back to the disk, unmounts, and waits until the kernel is done with the image.
   * @returns false when it is unexpectedly still in use: it then disappears here, lives on where it is used,
   * and `mount` refuses it until the last user is gone.
   */
  async unmount(mounted: Mounted): Promise<boolean> {
    // One that the kernel made read-only after an error cannot be trimmed; it is checked at the next mount.
    await kernel.trimFilesystem(mounted.root.fd).catch(() => 0)
    await mounted.root.close()
    const inUse = await kernel.unmount(Buffer.from(mounted.path), 0).then(
      () => false,
      async (error) => {
        if (codeOf(error) !== 'EBUSY') throw error
        await kernel.unmount(Buffer.from(mounted.path), 1)
        return true
      },
    )
    await rmdir(mounted.path)
    if (inUse) return false
    return this.#settle(mounted.id)
  }

  async #settle(id: FilesystemId): Promise<boolean> {
    try {
      await using image = await this.#locked(id)
      await shrinkIdle(image)
      return true
    } catch (error) {
      if (error instanceof Refusal) return false
      throw error
    }
  }

  /** Enlarges one that is not mounted. There is no way back to a smaller size. @throws Refusal as `mount`. */
  async grow(id: FilesystemId, quota: Quota): Promise<void> {
    await this.#orExplained(id, async () => {
      await using image = await this.#locked(id)
      await grow(this.#pathOf(id), image, quota)
    })
  }

  /** As `grow`, but leaves one alone that is large enough. */
  async growTo(id: FilesystemId, quota: Quota): Promise<void> {
    if (!(await this.suffices(id, quota))) await this.grow(id, quota)
  }

  /** Whether there is one that is large enough for this quota. */
  async suffices(id: FilesystemId, quota: Quota): Promise<boolean> {
    try {
      return (await stat(this.#pathOf(id))).size >= diskBytesFor(quota)
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return false
      throw error
    }
  }

  /** Copies one that is not mounted, sharing blocks where the disk can. @returns false when `to` exists. */
  async fork(from: FilesystemId, to: FilesystemId): Promise<boolean> {
    return this.#orExplained(to, async () => {
      await using _ = await this.#locked(from)
      return this.#maker.fork(this.#pathOf(from), this.#pathOf(to))
    })
  }

  /**
   * Copies one that is mounted, and to which nothing writes meanwhile, sharing blocks where the disk can.
   * @throws Refusal disk_unavailable.
   */
  async snapshot(mounted: Mounted, to: FilesystemId): Promise<void> {
    await this.#orExplained(to, async () => {
      await kernel.syncFilesystem(mounted.root.fd)
      await this.#maker.snapshot(this.#pathOf(mounted.id), this.#pathOf(to))
    })
  }

  /** Erases one that is not mounted. @throws Refusal thread_unknown, thread_busy. */
  async remove(id: FilesystemId): Promise<void> {
    await using _ = await this.#locked(id)
    await rm(this.#pathOf(id))
    await syncDirectory(this.#directoryOf(id.area, id.org))
  }

  /** Names of the filesystems of an org, unordered. */
  async names(area: FilesystemId['area'], org: string): Promise<string[]> {
    const files = await readdir(this.#directoryOf(area, org)).catch((error) => {
      if (codeOf(error) === 'ENOENT') return []
      throw error
    })
    return files.filter((file) => file.endsWith('.ext4')).map((file) => file.slice(0, -'.ext4'.length))
  }

  #locked(id: FilesystemId): Promise<Descriptor> {
    return openLockedDisk(this.#pathOf(id), this.#settings.lockPatienceMs, id)
  }

  #directoryOf(area: FilesystemId['area'], org: string): string {
    if (!isName(org)) throw new Refusal('invalid_argument', { field: 'org', problem: 'is not a valid name' })
    return join(this.#settings.home, area, org)
  }

  #pathOf(id: FilesystemId): string {
    if (!isName(id.name)) throw new Refusal('invalid_argument', { field: 'id', problem: 'is not a valid name' })
    return join(this.#directoryOf(id.area, id.org), `${id.name}.ext4`)
  }

  /** Does work that needs room on the disk. @throws Refusal disk_unavailable without it. */
  async #orExplained<T>(id: FilesystemId, work: () => Promise<T>): Promise<T> {
    await this.room.requireFor(id.org)
    try {
      return await work()
    } catch (error) {
      throw await this.#explained(error)
    }
  }

  /** An error of the disk, and any error while the disk is full, is reported as one of the disk. */
  async #explained(error: unknown): Promise<unknown> {
    if (error instanceof Refusal) return error
    const isFull = (await this.room.look().catch(() => 'ample')) === 'exhausted'
    return diskRefusalOf(error) ?? (isFull ? diskRefusal('its disk is full', error) : error)
  }
}

/** The encoding of dev_t: https://sourceware.org/git/?p=glibc.git;a=blob;f=bits/sysmacros.h */
const deviceNumbers = (device: number): string =>
  `${Math.floor(device / 256) % 4096}:${(device % 256) + Math.floor(device / 2 ** 20) * 256}`

/** A mount that fails at damage is tried once more after a check. */
async function mountChecked(image: Descriptor, path: string, check: () => Promise<void>): Promise<void> {
  try {
    await kernel.mountDisk(image.fd, Buffer.from(path))
  } catch (error) {
    if (!damage.has(codeOf(error) ?? '')) throw error
    await check()
    await kernel.mountDisk(image.fd, Buffer.from(path))
  }
}

async function dropLeftovers(root: Descriptor): Promise<void> {
  await removeTemporaryNames(root.fd)
  await dropLostAndFound(root)
}

const lostAndFoundName = 'lost+found'

/** What mkfs and e2fsck leave for themselves in the home of the user, while it holds nothing. */
async function dropLostAndFound(root: Descriptor): Promise<void> {
  try {
    const [, , , , , , uid] = await kernel.statName(root.fd, Buffer.from(lostAndFoundName))
    if (uid === 0) await kernel.removeName(root.fd, Buffer.from(lostAndFoundName), 1)
  } catch (error) {
    if (!['ENOENT', 'ENOTEMPTY', 'ENOTDIR'].includes(codeOf(error) ?? '')) throw error
  }
}

/** Room in a mounted filesystem. */
export async function usageOf(mounted: Mounted): Promise<Usage> {
  const [block = 0, blocks = 0, free = 0, available = 0, inodes = 0, freeInodes = 0] = await kernel.statFilesystem(
    mounted.root.fd,
  )
  return {
    totalBytes: block * blocks,
    freeBytes: block * available,
    usedBytes: block * (blocks - free),
    totalInodes: inodes,
    freeInodes,
  }
}
