import type { Quota, RunSpec, RunVolume } from '../../base/run.ts'
import type { Slot } from '../../engine/slots/slot.ts'
import type { OtherMount } from '../../storage/dock.ts'
import { type FilesystemId, keyOf, unknown } from '../../storage/filesystem-id.ts'
import type { Mounted } from '../../storage/filesystems.ts'
import type { MountCache, MountLease } from '../../storage/mount-cache.ts'
import { detach, dockFor, limitReached, type SlotMount } from '../runs/slot-mounts.ts'
import type { DiskWatch } from './disk-watch.ts'

/** Some ten megabytes. */
const goneMax = 100_000

/** In the dock of a slot, which has one run at a time. */
const volumesEntry = 'volumes'

/**
 * The volumes of this runner. They are shared: any number of runs has one at once, and its files may be written by a
 * client meanwhile. One is erased only while it is unused.
 */
export class VolumeClaims {
  readonly #mounts: MountCache
  readonly #watch: DiskWatch
  /** Erased ones. No name is used twice, so a run that was requested before cannot create one of them again. */
  readonly #gone = new Set<string>()

  constructor(mounts: MountCache, watch: DiskWatch) {
    this.#mounts = mounts
    this.#watch = watch
  }

  /** @throws Refusal volume_unknown when one was erased meanwhile. */
  claim({ orgId }: Pick<RunSpec, 'orgId'>, volumes: readonly RunVolume[]): VolumesClaim {
    for (const { name } of volumes) this.#refuseRemoved({ area: 'volumes', org: orgId, name })
    return new VolumesClaim(orgId, volumes, this.#mounts, this.#watch)
  }

  /** Work on the files of a volume that changes nothing. @throws Refusal volume_unknown, unavailable. */
  async reading<T>(id: FilesystemId, work: (root: number) => Promise<T>): Promise<T> {
    const lease = await this.#mounts.acquire(id, undefined)
    try {
      return await work(lease.mounted.root.fd)
    } finally {
      lease.release()
    }
  }

  /** Work that changes files, also while runs have the volume. @throws Refusal volume_unknown, unavailable. */
  writing<T>(id: FilesystemId, work: (root: number) => Promise<T>): Promise<T> {
    return this.reading(id, work)
  }

  /** Makes a volume, or lets a smaller one grow. @returns whether it was made. @throws Refusal volume_busy. */
  async create(id: FilesystemId, quota: Quota): Promise<boolean> {
    this.#refuseRemoved(id)
    return (await this.#mounts.suffices(id, quota)) ? false : this.#mounts.create(id, quota)
  }

  /** Erases a volume. @returns whether there was one. @throws Refusal volume_busy while somebody has it. */
  async remove(id: FilesystemId): Promise<boolean> {
    const removed = await this.#mounts.remove(id)
    this.#gone.add(keyOf(id))
    const [oldest] = this.#gone
    if (this.#gone.size > goneMax && oldest !== undefined) this.#gone.delete(oldest)
    return removed
  }

  #refuseRemoved(id: FilesystemId): void {
    if (this.#gone.has(keyOf(id))) throw unknown(id)
  }
}

/** The volumes of one run: mounted, then attached to its slot together; given back in one step. */
export class VolumesClaim {
  readonly #org: string
  readonly #volumes: readonly RunVolume[]
  readonly #mounts: MountCache
  readonly #watch: DiskWatch
  readonly #leases: { volume: RunVolume; lease: MountLease }[] = []
  #attached: SlotMount | undefined

  constructor(org: string, volumes: readonly RunVolume[], mounts: MountCache, watch: DiskWatch) {
    this.#org = org
    this.#volumes = volumes
    this.#mounts = mounts
    this.#watch = watch
  }

  /** Mounts them, each made first if need be. @throws Refusal unavailable, disk_unavailable. */
  async mount(): Promise<void> {
    if (this.#volumes.some(({ readOnly }) => !readOnly)) await this.#watch.requireFor(this.#org)
    for (const volume of this.#volumes) {
      const id: FilesystemId = { area: 'volumes', org: this.#org, name: volume.name }
      this.#leases.push({ volume, lease: await this.#mounts.acquire(id, volume.quota) })
    }
  }

  /** @param others mounted beside them. @returns the entry of the slot's dock below which they are now. */
  async attach(slot: Slot, others: readonly OtherMount[] = []): Promise<string> {
    const parts = this.#leases.map(({ volume: { slug, readOnly }, lease: { mounted } }) => ({
      name: slug,
      mounted,
      readOnly,
    }))
    const dock = await dockFor(
      slot,
      parts.map(({ mounted }) => mounted),
    )
    this.#attached = { slot, mount: await dock.attachVolumes(volumesEntry, slot.pid, parts, others) }
    return volumesEntry
  }

  /** What is mounted and can be written to. */
  get writable(): { mounted: Mounted; limitBytes: number }[] {
    return this.#leases
      .filter(({ volume }) => !volume.readOnly)
      .map(({ volume, lease: { mounted } }) => ({ mounted, limitBytes: volume.quota.bytes }))
  }

  /** @returns the limit that one of those that can be written has come to; `undefined` while there is room in all. */
  async limitReached(): Promise<number | undefined> {
    for (const { volume, lease } of this.#leases) {
      const limitBytes = volume.readOnly ? undefined : await limitReached(lease.mounted, volume.quota)
      if (limitBytes !== undefined) return limitBytes
    }
    return undefined
  }

  /** Gives them back. @throws what detaching throws; they are free then, too. */
  async release(): Promise<void> {
    const attached = this.#attached
    this.#attached = undefined
    try {
      if (attached) await detach(attached)
    } finally {
      for (const { lease } of this.#leases.splice(0)) lease.release()
    }
  }
}
