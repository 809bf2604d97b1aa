import { closeSync, constants, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { ImageConfig } from '../../base/image.ts'
import type { Image } from '../../engine/images/image.ts'
import type { ImageDirectories } from '../../engine/images/packages.ts'
import { openStoredImage } from '../../engine/images/stored.ts'
import type { LanguageFound } from '../../engine/jails/languages.ts'
import type { Machine } from '../../engine/machine.ts'
import type { EngineSettings } from '../../engine/settings.ts'
import { kernel } from '../../kernel/kernel.ts'
import type { Filesystems, Mounted } from '../../storage/filesystems.ts'
import type { ImageRecord } from './image-index.ts'

/** An image that slots and sandboxes can be made from, until `release`. */
export interface UsedImage {
  id: string
  /** Root of slots and variables of runs. */
  image: Pick<Image, 'slotRoot' | 'env'>
  /**
   * Its filesystem, to be attached to a dock with `isImage`, read-only. Together with `top` it is the lower part of a
   * writable overlay: `lowerdir=<top>:<filesystem>`.
   */
  mounted: Mounted
  /** Directory with mount points, users and helpers of the product, which belongs above the filesystem. */
  top: string
  config: ImageConfig
  languages: readonly LanguageFound[]
  release(): void
}

/** The filesystem of an image. */
export const filesystemOf = (id: string) => ({ area: 'images', org: 'local', name: id }) as const

interface Open {
  mounted: Mounted
  image: Image
  users: number
}

/** The images that are mounted now. Each is mounted once for all slots, and until the last slot of it ends. */
export class OpenImages {
  readonly #filesystems: Filesystems
  readonly #machine: Pick<Machine, 'rootsDir'>
  readonly #settings: EngineSettings
  readonly #onUnused: (id: string) => void
  readonly #onProblem: (error: unknown) => void
  readonly #open = new Map<string, Promise<Open>>()
  readonly #closing = new Map<string, Promise<void>>()

  /** @param onUnused called when the last user of an image has released it, and it was unmounted. @param onProblem called if it could not be. */
  constructor(
    filesystems: Filesystems,
    machine: Pick<Machine, 'rootsDir'>,
    settings: EngineSettings,
    onUnused: (id: string) => void,
    onProblem: (error: unknown) => void,
  ) {
    this.#filesystems = filesystems
    this.#machine = machine
    this.#settings = settings
    this.#onUnused = onUnused
    this.#onProblem = onProblem
  }

  isUsed(id: string): boolean {
    return this.#open.has(id) || this.#closing.has(id)
  }

  /** Mounts an image, or uses it with others. */
  async use(record: ImageRecord): Promise<UsedImage> {
    const { id, config, languages } = record
    await this.#closing.get(id)
    const opening = this.#open.get(id) ?? this.#mount(record)
    this.#open.set(id, opening)
    let open: Open
    try {
      open = await opening
    } catch (error) {
      this.#open.delete(id)
      throw error
    }
    open.users += 1
    let isReleased = false
    const release = () => {
      if (isReleased) return
      isReleased = true
      open.users -= 1
      if (open.users === 0) this.#close(id, open).catch(this.#onProblem)
    }
    const { image, mounted } = open
    return { id, image, mounted, top: join(this.#dirOf(id), 'top'), config, languages, release }
  }

  /** Unmounts all. Every slot and sandbox has ended. */
  async close(): Promise<void> {
    for (const [id, opening] of [...this.#open]) await this.#close(id, await opening)
    await Promise.all(this.#closing.values())
  }

  async #mount({ id, config, hasNode }: ImageRecord): Promise<Open> {
    const mounted = await this.#filesystems.mount(filesystemOf(id))
    try {
      const image = await openStoredImage(this.#dirOf(id), mounted, this.#settings, { env: config.env, hasNode })
      return { mounted, image, users: 0 }
    } catch (error) {
      await this.#filesystems.unmount(mounted)
      throw error
    }
  }

  /** A use that begins meanwhile waits, and mounts it again. */
  #close(id: string, { mounted, image }: Open): Promise<void> {
    this.#open.delete(id)
    const closing = (async () => {
      await image.release()
      rmSync(this.#dirOf(id), { recursive: true, force: true })
      await this.#filesystems.unmount(mounted)
    })().finally(() => {
      this.#closing.delete(id)
      this.#onUnused(id)
    })
    this.#closing.set(id, closing)
    return closing
  }

  #dirOf(id: string): string {
    return join(this.#machine.rootsDir, 'images', id)
  }
}

/** BOUNDARY: directories of an image that is not trusted, by descriptor and without following links. */
export async function directoriesOf(mounted: Mounted, paths: readonly string[]): Promise<ImageDirectories> {
  const found = new Map<string, readonly string[]>()
  for (const path of paths) {
    const fd = await kernel
      .openBeneath(mounted.root.fd, Buffer.from(path), constants.O_RDONLY | constants.O_DIRECTORY, 0)
      .catch(() => undefined)
    if (fd === undefined) continue
    try {
      found.set(path, readdirSync(`/proc/self/fd/${fd}`).toSorted())
    } finally {
      closeSync(fd)
    }
  }
  return { list: (path) => found.get(path) ?? [] }
}
