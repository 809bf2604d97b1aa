import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { Cleanup } from '../../base/cleanup.ts'
import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import type { ImageConfig, ImageProgress, ImageSource } from '../../base/image.ts'
import type { Quota } from '../../base/run.ts'
import type { Software } from '../../base/software.ts'
import { Builder, type BuilderAnswer, BuilderLost } from '../../engine/images/builder.ts'
import { readPackages } from '../../engine/images/packages.ts'
import { openStoredImage } from '../../engine/images/stored.ts'
import type { LanguageFound } from '../../engine/jails/languages.ts'
import type { Machine } from '../../engine/machine.ts'
import { probeImage } from '../../engine/probe.ts'
import type { EngineSettings } from '../../engine/settings.ts'
import { kernel } from '../../kernel/kernel.ts'
import { Dock } from '../../storage/dock.ts'
import { type Filesystems, type Mounted, usageOf } from '../../storage/filesystems.ts'
import type { ImageRecord } from './image-index.ts'
import { directoriesOf, filesystemOf } from './open-images.ts'

export interface MakerSettings {
  engine: EngineSettings
  /** Size of an image with all its files. */
  quota: Quota
}

/** What an image is made from. */
export interface ImageRecipe {
  name: string
  source: ImageSource
  digest: string
  layers: readonly string[]
  config: ImageConfig
  hasNode: boolean
  /** Directory with packages that the builder installs. */
  packages?: string
  /** Fills the filesystem. */
  fill(builder: Builder): Promise<void>
}

/** Makes stored images: a filesystem of its own for each, filled by a builder, whose languages are then detected. */
export class ImageMaker {
  readonly #machine: Machine
  readonly #filesystems: Filesystems
  readonly #settings: MakerSettings

  constructor(machine: Machine, filesystems: Filesystems, settings: MakerSettings) {
    this.#machine = machine
    this.#filesystems = filesystems
    this.#settings = settings
  }

  get quota(): Quota {
    return this.#settings.quota
  }

  /**
   * Makes an image, or nothing.
   * @throws Refusal image_invalid, image_too_large, disk_unavailable, build_failed.
   */
  async make(
    recipe: ImageRecipe,
    progress: (progress: ImageProgress) => void,
    signal: AbortSignal,
  ): Promise<ImageRecord> {
    const id = newId('image')
    const where = filesystemOf(id)
    await this.#filesystems.create(where, this.#settings.quota)
    try {
      const mounted = await this.#filesystems.mount(where)
      try {
        await this.#fill(recipe, mounted, signal)
        progress({ step: 'checking', detail: '', done: 0, total: 0 })
        const { languages, software } = await this.#inspect(id, mounted, recipe)
        const { name, source, digest, layers, config, hasNode } = recipe
        await kernel.syncFilesystem(mounted.root.fd)
        const { totalInodes, freeInodes } = await usageOf(mounted)
        const sizeBytes = (await this.#filesystems.allocatedBytes(where)) ?? 0
        const about = { source, digest, layers, config, hasNode, languages, software }
        return { id, names: [name], createdAt: timestamp(), sizeBytes, files: totalInodes - freeInodes, ...about }
      } finally {
        await this.#filesystems.unmount(mounted)
      }
    } catch (error) {
      await this.#filesystems.remove(where)
      throw error
    }
  }

  async #fill({ name, packages, fill }: ImageRecipe, mounted: Mounted, signal: AbortSignal): Promise<void> {
    const undo = new Cleanup()
    try {
      const dock = undo.owns(await Dock.open(join(this.#machine.docksDir, newId('slot'))))
      const builder = await Builder.start(this.#machine, dock, packages)
      undo.add(() => builder.close())
      const stop = () => builder.stop()
      signal.addEventListener('abort', stop, { once: true })
      undo.add(() => signal.removeEventListener('abort', stop))
      const attached = { initPid: builder.pid, name: 'image', readOnly: false, isImage: true }
      await dock.attach(mounted, attached)
      await fill(builder)
      await builder.finish()
    } catch (error) {
      signal.throwIfAborted()
      throw error instanceof BuilderLost
        ? new Refusal('build_failed', { image: name, problem: error.message.slice(0, 500) })
        : error
    } finally {
      await undo.run()
    }
  }

  async #inspect(
    id: string,
    mounted: Mounted,
    { config, hasNode }: ImageRecipe,
  ): Promise<{ languages: LanguageFound[]; software: Software }> {
    const dir = join(this.#machine.rootsDir, 'images', id)
    const image = await openStoredImage(dir, mounted, this.#settings.engine, { env: config.env, hasNode })
    try {
      const languages = await probeImage({ ...this.#machine, openDock: undefined, image })
      const interpreters = languages.map(({ language, version }) => ({ language, version }))
      return { languages, software: { interpreters, ...readPackages(await directoriesOf(mounted, softwarePaths)) } }
    } finally {
      await image.release()
      rmSync(dir, { recursive: true, force: true })
    }
  }
}

const pythonVersions = Array.from({ length: 20 }, (_, minor) => `usr/local/lib/python3.${minor}`)
/** Where `readPackages` looks. */
const softwarePaths = [
  ...['usr/bin', 'usr/local/bin', 'bin', 'usr/local/lib', 'usr/lib/python3/dist-packages'],
  ...pythonVersions.flatMap((path) => [`${path}/dist-packages`, `${path}/site-packages`]),
]

/** @throws Refusal for an answer of a builder that is an error. */
export function requireBuilt(name: string, answer: BuilderAnswer, { bytes }: Quota): void {
  switch (answer.error) {
    case undefined:
      return
    case 'full':
      throw new Refusal('image_too_large', { image: name, setting: 'image_size', limit: bytes })
    case 'invalid':
      throw new Refusal('image_invalid', { image: name, problem: answer.detail })
    case 'zstd_missing':
      throw new Refusal('build_failed', {
        image: name,
        problem: 'a layer is compressed with zstd: apt-get install zstd',
      })
    case 'failed':
      throw new Refusal('build_failed', { image: name, problem: answer.detail.slice(-500) })
  }
}
