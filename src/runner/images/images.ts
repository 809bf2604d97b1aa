import { hash } from 'node:crypto'
import { join } from 'node:path'
import { makeDirectoryDurably } from '../../base/durable-directory.ts'
import { Refusal } from '../../base/errors.ts'
import { dataImage, defaultImage, type ImageProgress, imageAliases } from '../../base/image.ts'
import type { Software } from '../../base/software.ts'
import { readPackages } from '../../engine/images/packages.ts'
import type { LanguageFound } from '../../engine/jails/languages.ts'
import type { Machine } from '../../engine/machine.ts'
import type { EngineSettings } from '../../engine/settings.ts'
import type { Log } from '../../observe/log.ts'
import { Filesystems } from '../../storage/filesystems.ts'
import type { CollectedImages, ImageChange, ImageSoftware } from '../protocol/image-messages.ts'
import { Blobs } from './blobs.ts'
import { type ChangeSettings, ImageChanges } from './image-changes.ts'
import { ImageIndex, type ImageRecord } from './image-index.ts'
import { ImageMaker } from './image-maker.ts'
import { filesystemOf, OpenImages, type UsedImage } from './open-images.ts'

export interface ImagesSettings extends ChangeSettings {
  engine: EngineSettings
  /** Where filesystems of images are mounted. */
  mountsDir: string
  /** Free disk space that is kept. */
  reserveBytes: number
  /** Whether `default` is the image `data` when there is one. */
  prefersData: boolean
}

/** Each has a list of its packages, which the front keeps in memory for descriptions of tools. */
const imagesMax = 200

/** The images of this runner: which there are, making them, and using them for slots and sandboxes. */
export class Images {
  readonly #machine: Machine
  readonly #prefersData: boolean
  readonly #index: ImageIndex
  readonly #filesystems: Filesystems
  readonly #blobs: Blobs
  readonly #changes: ImageChanges
  readonly #open: OpenImages
  readonly #log: Log
  readonly #machineSoftware: Software
  #onChange: () => void = () => undefined

  private constructor(settings: ImagesSettings, machine: Machine, disks: Filesystems, blobs: Blobs, log: Log) {
    this.#machine = machine
    this.#prefersData = settings.prefersData
    this.#filesystems = disks
    this.#blobs = blobs
    this.#log = log
    this.#index = new ImageIndex(settings.home)
    const interpreters = machine.languages.map(({ language, version }) => ({ language, version }))
    this.#machineSoftware = { interpreters, ...readPackages() }
    this.#changes = new ImageChanges(machine, settings, new ImageMaker(machine, disks, settings), blobs, {
      known: (digest) => this.#index.records.find((record) => record.digest === digest),
      keep: (record) => this.#keep(record),
    })
    this.#open = new OpenImages(
      disks,
      machine,
      settings.engine,
      () => void this.#removeUnnamed(),
      (error) => log.error({ err: error }, 'image could not be unmounted'),
    )
  }

  /** Opens the images of the home, and removes what a crash left of unfinished ones. */
  static async open(settings: ImagesSettings, machine: Machine, log: Log): Promise<Images> {
    const { home, mountsDir, reserveBytes } = settings
    // The user that downloads packages passes through it.
    makeDirectoryDurably(home, 0o711)
    const disks = await Filesystems.open({ home: join(home, 'disks'), mountsDir, reserveBytes, lockPatienceMs: 5_000 })
    const images = new Images(settings, machine, disks, await Blobs.open(home), log)
    for (const id of await disks.names('images', 'local'))
      if (images.#index.withId(id) === undefined) await disks.remove(filesystemOf(id))
    await images.#removeUnnamed()
    return images
  }

  /** Calls a function after each change of what names refer to. */
  onChange(changed: () => void): void {
    this.#onChange = changed
  }

  list(): readonly ImageRecord[] {
    return this.#index.records
  }

  /**
   * Finds what a name or an ID refers to.
   * @returns undefined for the image of the machine.
   * @throws Refusal image_unknown.
   */
  find(name: string = defaultImage): ImageRecord | undefined {
    const record = this.#index.named(name) ?? this.#index.withId(name)
    if (record !== undefined) return record
    if (name === defaultImage) return this.#prefersData ? this.#index.named(dataImage) : undefined
    if (imageAliases.includes(name)) return this.#index.named(dataImage)
    throw new Refusal('image_unknown', { image: name })
  }

  /** Mounts a stored image for a slot or a sandbox. @throws Refusal disk_unavailable. */
  use(record: ImageRecord): Promise<UsedImage> {
    return this.#open.use(record)
  }

  /** Returns the languages of an image, by default of the default one. @throws Refusal image_unknown. */
  languagesOf(name?: string): readonly LanguageFound[] {
    return this.find(name)?.languages ?? this.#machine.languages
  }

  /** What the default image and the named ones have. */
  get software(): ImageSoftware {
    const byName = this.#index.records.flatMap((record) => record.names.map((name) => [name, record] as const))
    const byDefault = this.find()
    const { interpreters } = this.#machineSoftware
    return {
      software: byDefault?.software ?? this.#machineSoftware,
      digest: byDefault?.digest ?? hash('sha256', JSON.stringify([process.arch, interpreters])),
      named: Object.fromEntries(byName.map(([name, { software }]) => [name, software])),
      digests: Object.fromEntries(byName.map(([name, { digest }]) => [name, digest])),
    }
  }

  /** Pulls, imports or builds an image. @throws Refusal of each, and the reason of the signal. */
  async change(
    change: ImageChange,
    progress: (progress: ImageProgress) => void,
    signal: AbortSignal,
  ): Promise<ImageRecord> {
    if (change.name === defaultImage || imageAliases.includes(change.name))
      throw new Refusal('image_invalid', { image: change.name, problem: 'this name is reserved' })
    if (this.#index.records.length >= imagesMax) throw new Refusal('images_full', { limit: imagesMax })
    return this.#changes.make(change, progress, signal)
  }

  /** Removes a name, and the image when it has no other and nothing uses it. @throws Refusal image_unknown. */
  async remove(name: string): Promise<void> {
    const record = this.#index.named(name) ?? this.#index.withId(name)
    if (record === undefined) throw new Refusal('image_unknown', { image: name })
    for (const one of record.names.includes(name) ? [name] : record.names) this.#index.removeName(one)
    this.#onChange()
    await this.#removeUnnamed()
  }

  /** Removes images that nothing refers to or uses, and layers that neither an image nor a pull needs. */
  async collect(): Promise<CollectedImages> {
    const before = this.#index.records
    await this.#removeUnnamed()
    const removed = before.filter(({ id }) => this.#index.withId(id) === undefined)
    const kept = new Set([...this.#index.records.flatMap(({ layers }) => layers), ...this.#changes.needed])
    const { layers, bytes } = await this.#blobs.collect(kept)
    return { images: removed.length, layers, bytes: removed.reduce((sum, { sizeBytes }) => sum + sizeBytes, bytes) }
  }

  /** Unmounts all images. Slots and sandboxes have ended. */
  async close(): Promise<void> {
    await this.#open.close()
  }

  #keep(record: ImageRecord): ImageRecord {
    this.#index.put(record)
    this.#onChange()
    void this.#removeUnnamed()
    this.#log.info({ images: record.names, digest: record.digest, size_bytes: record.sizeBytes }, 'image added')
    return record
  }

  /** Removes images that no name refers to and nothing uses. Never rejects: what is left is removed at the next start. */
  async #removeUnnamed(): Promise<void> {
    for (const { id, names } of this.#index.records) {
      if (names.length > 0 || this.#open.isUsed(id)) continue
      this.#index.remove(id)
      await this.#filesystems.remove(filesystemOf(id)).catch((error: unknown) => {
        this.#log.error({ err: error, image: id }, 'image could not be removed')
      })
    }
  }
}
