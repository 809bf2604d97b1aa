/**
 * How storage reaches a slot. The slot binds its dock with slave propagation (`rbind,rslave`; what holds the dock in its
 * mount namespace must be a slave as well, not private). What is mounted in the dock afterwards appears inside, and
 * disappears when it is unmounted here. Such mounts come from a mount namespace of a higher user namespace, so that the
 * kernel locks their flags: root inside can take back neither ro nor nosuid nor nodev (mount_namespaces(7)).
 */
import { constants } from 'node:fs'
import { chmod, mkdir, readdir, rmdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { codeOf, kernel } from '../kernel/kernel.ts'
import { Descriptor } from './descriptor.ts'
import { isName } from './filesystem-id.ts'
import type { Mounted } from './filesystems.ts'

/** A filesystem as a slot sees it. */
export interface DockMount {
  /** Directory in the dock at which it appears. */
  readonly name: string
  /**
   * Takes it out of the slot; only when every process of the jail is dead.
   * @returns false when something in the slot held on to it: it is out of sight then, but what holds it can still write,
   * and the filesystem cannot be mounted again until the slot is gone. Such a slot must be destroyed.
   */
  detach(): Promise<boolean>
}

export interface AttachOptions {
  /** Process in the slot's user namespace, alive and not yet waited for: its ids are translated. */
  initPid: number
  /** Directory in the dock, `isName`; free. */
  name: string
  readOnly: boolean
}

/** A directory of one slot through which filesystems come and go. */
export class Dock {
  /** What the slot binds. */
  readonly dir: string
  #released = false
  /** Of the slot: opened once, as are the places; both are on the way of every run. */
  #namespace: { pid: number; descriptor: Descriptor } | undefined
  readonly #places = new Set<string>()

  private constructor(dir: string) {
    this.dir = dir
  }

  /** @param dir made here; its parent exists and is reachable by nobody but us. */
  static async open(dir: string): Promise<Dock> {
    await mkdir(dir)
    try {
      await chmod(dir, 0o755) // Whatever the umask: the slot comes as users of its own.
      await kernel.makeDock(Buffer.from(dir))
      return new Dock(dir)
    } catch (error) {
      await rmdir(dir)
      throw error
    }
  }

  /** Shows a filesystem to the slot: nosuid, nodev, ids translated so that 1000 on the disk is 1000 inside. */
  async attach(mounted: Mounted, { initPid, name, readOnly }: AttachOptions): Promise<DockMount> {
    if (!isName(name)) throw new Error(`${name} is no name for an attachment`)
    const target = join(this.dir, name)
    const namespace = await this.#namespaceOf(initPid)
    if (!this.#places.has(name)) await mkdir(target)
    this.#places.add(name)
    await kernel.mountIdmapped(mounted.root.fd, namespace.fd, readOnly ? 1 : 0, Buffer.from(target))
    return { name, detach: () => this.#detach(target) }
  }

  /**
   * Shows several filesystems to the slot, each in a directory of its own below one entry. The entry holds nothing else
   * and cannot be written to, so that what is missing in it is seen.
   * @param parts at least one; their names differ.
   */
  async attachVolumes(
    name: string,
    initPid: number,
    parts: readonly { name: string; mounted: Mounted; readOnly: boolean }[],
  ): Promise<DockMount> {
    for (const each of [name, ...parts.map((part) => part.name)])
      if (!isName(each)) throw new Error(`${each} is no name for an attachment`)
    const target = join(this.dir, name)
    const namespace = await this.#namespaceOf(initPid)
    if (!this.#places.has(name)) await mkdir(target)
    this.#places.add(name)
    await kernel.mountDirectories(Buffer.from(target), Buffer.from(parts.map((part) => part.name).join('/')))
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
    } catch (error) {
      await detachAll()
      throw error
    }
    return { name, detach: detachAll }
  }

  async #namespaceOf(pid: number): Promise<Descriptor> {
    if (this.#namespace?.pid === pid) return this.#namespace.descriptor
    await this.#namespace?.descriptor.close()
    const descriptor = await Descriptor.open(`/proc/${pid}/ns/user`, constants.O_RDONLY)
    this.#namespace = { pid, descriptor }
    return descriptor
  }

  /** After `release` there is nothing left to detach; one that was under way ends with it. */
  async #detach(target: string): Promise<boolean> {
    if (this.#released) return true
    try {
      return await detach(target)
    } catch (error) {
      if (this.#released) return true
      throw error
    }
  }

  /** Ends the dock after its slot; what was left attached is detached. */
  async release(): Promise<void> {
    this.#released = true
    await this.#namespace?.descriptor.close()
    await kernel.unmount(Buffer.from(this.dir), 1)
    // Attachments that were left are under the dock's mount and went with it; their places remain.
    for (const name of await readdir(this.dir)) await rmdir(join(this.dir, name))
    await rmdir(this.dir)
  }
}

/** A jail that has ended gives up its mounts in the kernel a moment after its last process. */
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
