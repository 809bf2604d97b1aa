/**
 * Mounts storage into a running slot. The slot binds its dock with slave propagation (`rbind,rslave`; the mount that
 * contains the dock in its mount namespace must be a slave too, not private). Later mounts in the dock appear in the slot,
 * and disappear when they are unmounted here. They come from a mount namespace of a more privileged user namespace, so the
 * kernel locks their flags: root in the slot cannot clear ro, nosuid or nodev (mount_namespaces(7)).
 */
import { constants } from 'node:fs'
import { chmod, mkdir, readdir, rmdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { codeOf, kernel } from '../kernel/kernel.ts'
import { Descriptor } from './descriptor.ts'
import { isName } from './filesystem-id.ts'
import type { Mounted } from './filesystems.ts'

/** A filesystem that is attached to a slot. */
export interface DockMount {
  /** Directory in the dock where it is mounted. */
  readonly name: string
  /**
   * Detaches it from the slot. Every process of the jail must be dead.
   * @returns `false` if a process in the slot still holds it. It is no longer visible then, but the process can still
   * write, and the filesystem cannot be mounted again until the slot is destroyed. The caller must destroy the slot.
   */
  detach(): Promise<boolean>
}

/** What is mounted beside filesystems. */
export interface OtherMount {
  name: string
  /** Mounts it at an existing directory: nosuid, nodev. */
  mount(target: string): Promise<void>
}

export interface AttachOptions {
  /** A process in the user namespace of the slot that has not been reaped. IDs are translated to its namespace. */
  initPid: number
  /** Name of an unused directory in the dock; see `isName`. */
  name: string
  readOnly: boolean
  /** Whether it is an image, whose root directory belongs to its own root; that of other filesystems is the user's. */
  isImage?: boolean
}

/** The directory in an entry that was made by `makePlace`. */
export const inPlace = 'attached'

/** The directory of one slot in which filesystems are attached and detached. */
export class Dock {
  /** The directory that the slot binds. */
  readonly dir: string
  #released = false
  #unmounted = false
  /** User namespace of the slot. Opened once, like the mount points, because every run uses both. */
  #namespace: { pid: number; descriptor: Descriptor } | undefined
  readonly #places = new Set<string>()

  private constructor(dir: string) {
    this.dir = dir
  }

  /** @param dir is created; its parent exists and is accessible only to this process. */
  static async open(dir: string): Promise<Dock> {
    await mkdir(dir)
    try {
      await chmod(dir, 0o755) // Independent of the umask: the slot accesses it with its own users.
      await kernel.makeDock(Buffer.from(dir))
      return new Dock(dir)
    } catch (error) {
      await rmdir(dir)
      throw error
    }
  }

  /** Attaches a filesystem to the slot: nosuid, nodev, with IDs translated so that 1000 on the disk is 1000 in the slot. */
  async attach(mounted: Mounted, { initPid, name, readOnly, isImage = false }: AttachOptions): Promise<DockMount> {
    if (!isName(name)) throw new Error(`${name} is no name for an attachment`)
    const target = join(this.dir, name)
    const namespace = await this.#namespaceOf(initPid)
    if (!this.#places.has(name)) await mkdir(target)
    this.#places.add(name)
    const mount = isImage ? kernel.mountImage : kernel.mountIdmapped
    await mount(mounted.root.fd, namespace.fd, readOnly ? 1 : 0, Buffer.from(target))
    return { name, detach: () => this.#detach(target) }
  }

  /** Makes an entry in which a filesystem can be attached later, also for what has bound this entry meanwhile. */
  async makePlace(name: string): Promise<void> {
    const target = join(this.dir, name)
    await mkdir(target)
    this.#places.add(name)
    await kernel.mountDirectories(Buffer.from(target), Buffer.from(inPlace))
  }

  /** Attaches a filesystem read-only in such an entry, one at a time; as `attach`. */
  async attachInPlace(name: string, mounted: Mounted, initPid: number): Promise<DockMount> {
    const target = join(this.dir, name, inPlace)
    const namespace = await this.#namespaceOf(initPid)
    await kernel.mountIdmapped(mounted.root.fd, namespace.fd, 1, Buffer.from(target))
    return { name, detach: () => this.#detach(target) }
  }

  /**
   * Attaches several filesystems to the slot, each in a directory below one entry. The entry contains nothing else and is
   * read-only, so that a missing filesystem is noticed.
   * @param parts with unique names. @param others mounted by their own function; at least one of both.
   */
  async attachVolumes(
    name: string,
    initPid: number,
    parts: readonly { name: string; mounted: Mounted; readOnly: boolean }[],
    others: readonly OtherMount[] = [],
  ): Promise<DockMount> {
    const names = [...parts, ...others].map((part) => part.name)
    for (const each of [name, ...names]) if (!isName(each)) throw new Error(`${each} is no name for an attachment`)
    const target = join(this.dir, name)
    const namespace = await this.#namespaceOf(initPid)
    if (!this.#places.has(name)) await mkdir(target)
    this.#places.add(name)
    await kernel.mountDirectories(Buffer.from(target), Buffer.from(names.join('/')))
    const placed: string[] = [target]
    const detachAll = async (): Promise<boolean> => {
      let clean = true
      for (const place of placed.toReversed()) clean = (await this.#detach(place)) && clean
      return clean
    }
    try {
      for (const { name: below, mounted, readOnly } of parts) {
        const place = join(target, below)
        await kernel.mountIdmapped(mounted.root.fd, namespace.fd, readOnly ? 1 : 0, Buffer.from(place))
        placed.push(place)
      }
      for (const other of others) {
        const place = join(target, other.name)
        await other.mount(place)
        placed.push(place)
      }
    } catch (error) {
      await detachAll()
      throw error
    }
    return { name, detach: detachAll }
  }

  /**
   * Attaches the parts of an image to the slot, each in a directory below one read-only entry, with IDs translated: root of
   * the image is root of the slot. On a filesystem that cannot translate IDs their owner is unknown.
   * @param parts directories of the image, with unique names.
   */
  async attachImage(name: string, initPid: number, parts: readonly { name: string; dir: string }[]): Promise<void> {
    const target = join(this.dir, name)
    const namespace = await this.#namespaceOf(initPid)
    await mkdir(target)
    this.#places.add(name)
    await kernel.mountDirectories(Buffer.from(target), Buffer.from(parts.map((part) => part.name).join('/')))
    for (const part of parts) {
      await using root = await Descriptor.open(part.dir, constants.O_RDONLY | constants.O_DIRECTORY)
      const place = Buffer.from(join(target, part.name))
      await kernel.mountImage(root.fd, namespace.fd, 1, place).catch(async (error) => {
        if (codeOf(error) !== 'EINVAL') throw error
        await kernel.bindReadOnly(Buffer.from(part.dir), place)
      })
    }
  }

  async #namespaceOf(pid: number): Promise<Descriptor> {
    if (this.#namespace?.pid === pid) return this.#namespace.descriptor
    await this.#namespace?.descriptor.close()
    const descriptor = await Descriptor.open(`/proc/${pid}/ns/user`, constants.O_RDONLY)
    this.#namespace = { pid, descriptor }
    return descriptor
  }

  /** Does nothing after `release`, which also ends a detach in progress. */
  async #detach(target: string): Promise<boolean> {
    if (this.#released) return true
    try {
      return await detach(target)
    } catch (error) {
      if (this.#released) return true
      throw error
    }
  }

  /** Removes the dock after its slot was destroyed, and detaches everything. Can be repeated after a failure. */
  async release(): Promise<void> {
    this.#released = true
    const namespace = this.#namespace
    this.#namespace = undefined
    await namespace?.descriptor.close()
    if (!this.#unmounted) await kernel.unmount(Buffer.from(this.dir), 1)
    this.#unmounted = true
    // Remaining attachments were unmounted with the dock; their directories remain.
    for (const name of await readdir(this.dir)) await rmdir(join(this.dir, name))
    await rmdir(this.dir)
  }
}

/** Waits for the kernel to release the mounts of a jail, which happens shortly after its last process has exited. */
const busyPatience = { attempts: 50, delayMs: 2 }

async function detach(target: string): Promise<boolean> {
  const clean = await unmountPatiently(target)
  if (!clean) await kernel.unmount(Buffer.from(target), 1)
  return clean
}

async function unmountPatiently(target: string): Promise<boolean> {
  for (let attempt = 1; ; attempt++) {
    try {
      await kernel.unmount(Buffer.from(target), 0)
      return true
    } catch (error) {
      if (codeOf(error) !== 'EBUSY') throw error
      if (attempt === busyPatience.attempts) return false
      await sleep(busyPatience.delayMs)
    }
  }
}
