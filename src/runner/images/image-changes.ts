import { spawn } from 'node:child_process'
import { statSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { Refusal } from '../../base/errors.ts'
import type { ImageConfig, ImageProgress, ImageSource } from '../../base/image.ts'
import { InTurn } from '../../base/in-turn.ts'
import type { Quota } from '../../base/run.ts'
import type { Builder } from '../../engine/images/builder.ts'
import type { Machine } from '../../engine/machine.ts'
import { parseReference } from '../../registry/reference.ts'
import type { ImageChange } from '../protocol/image-messages.ts'
import type { Blobs } from './blobs.ts'
import { copyLayout, type FetchOptions, type ImageContent, isLayout, pullContent } from './image-content.ts'
import type { ImageRecord } from './image-index.ts'
import { type ImageMaker, type ImageRecipe, requireBuilt } from './image-maker.ts'
import { downloadPackages } from './package-downloads.ts'
import { Puller, type PullerCommand } from './puller.ts'

export interface ChangeSettings {
  /** Directory of images. */
  home: string
  /** Size of one image. */
  quota: Quota
  pullerCommand: PullerCommand
  /** Addresses of registries, with credentials. */
  registries: Readonly<Record<string, string>>
  /** Hosts and networks that need not be public. */
  outboundAllow: readonly string[]
}

/** Keeps the images that are made. */
export interface ImageKeeper {
  /** Finds the image that was made from the same content. */
  known(digest: string): ImageRecord | undefined
  keep(record: ImageRecord): ImageRecord
}

const noConfig: ImageConfig = { env: {}, workdir: '/', user: '', command: [] }

type Report = (progress: ImageProgress) => void

/** Pulls, imports and builds images. */
export class ImageChanges {
  readonly #machine: Machine
  readonly #settings: ChangeSettings
  readonly #maker: ImageMaker
  readonly #blobs: Blobs
  readonly #keeper: ImageKeeper
  readonly #turns = new InTurn()
  /** Layers of the changes that are going on. */
  readonly #needed = new Map<AbortSignal, readonly string[]>()

  constructor(machine: Machine, settings: ChangeSettings, maker: ImageMaker, blobs: Blobs, keeper: ImageKeeper) {
    this.#machine = machine
    this.#settings = settings
    this.#maker = maker
    this.#blobs = blobs
    this.#keeper = keeper
  }

  /** Layers that a collection must keep. */
  get needed(): readonly string[] {
    return [...this.#needed.values()].flat()
  }

  /**
   * Makes one image. Changes of one name are made one after the other.
   * @throws Refusal of each kind of change, and the reason of the signal.
   */
  async make(change: ImageChange, progress: Report, signal: AbortSignal): Promise<ImageRecord> {
    try {
      return await this.#turns.run(`name ${change.name}`, () => {
        signal.throwIfAborted()
        switch (change.kind) {
          case 'pull':
            return this.#pull(change.name, progress, signal)
          case 'import':
            return this.#import(change.name, change.path, progress, signal)
          case 'build':
            return this.#build(change.name, change.packages, progress, signal)
        }
      })
    } finally {
      this.#needed.delete(signal)
    }
  }

  async #pull(name: string, progress: Report, signal: AbortSignal): Promise<ImageRecord> {
    const reference = parseReference(name)
    const { pullerCommand, registries, outboundAllow } = this.#settings
    const user = this.#machine.ids.lease()
    const puller = new Puller(pullerCommand(user.first), { name, registries, allow: outboundAllow })
    try {
      const content = await pullContent(puller, reference, this.#fetchOptions(name, progress, signal))
      return await this.#unpack(name, 'registry', content, progress, signal)
    } finally {
      puller.close()
      await puller.exited
      user.release()
    }
  }

  async #import(name: string, path: string, progress: Report, signal: AbortSignal): Promise<ImageRecord> {
    const isDirectory = statSync(path, { throwIfNoEntry: false })?.isDirectory()
    if (isDirectory === undefined)
      throw new Refusal('image_invalid', { image: name, problem: `${path} does not exist` })
    if (!isDirectory || !(await isLayout(path)))
      return this.#importFiles(name, path, isDirectory ? 'directory' : 'archive', progress, signal)
    const content = await copyLayout(path, this.#fetchOptions(name, progress, signal))
    return this.#unpack(name, 'layout', content, progress, signal)
  }

  async #unpack(
    name: string,
    source: ImageSource,
    { digest, config, layers, diffIds }: ImageContent,
    progress: Report,
    signal: AbortSignal,
  ): Promise<ImageRecord> {
    const known = this.#keeper.known(digest)
    if (known !== undefined) return this.#keeper.keep(withName(known, name))
    const fill = async (builder: Builder) => {
      for (const [index, layer] of layers.entries()) {
        signal.throwIfAborted()
        progress({ step: 'unpacking', detail: layer.digest, done: index, total: layers.length })
        const answer = await builder.layer(this.#blobs.read(layer.digest), this.#mostBytes)
        requireBuilt(name, answer, this.#settings.quota)
        if (answer.diffId !== diffIds[index])
          throw new Refusal('image_invalid', {
            image: name,
            problem: `${layer.digest} is not the layer of its configuration`,
          })
      }
    }
    const layersOf = layers.map((layer) => layer.digest)
    const recipe = { name, source, digest, layers: layersOf, config, hasNode: false, fill }
    return this.#make(recipe, progress, signal)
  }

  async #importFiles(
    name: string,
    path: string,
    source: 'directory' | 'archive',
    progress: Report,
    signal: AbortSignal,
  ): Promise<ImageRecord> {
    let digest = ''
    const fill = async (builder: Builder) => {
      progress({ step: 'unpacking', detail: path, done: 0, total: 0 })
      const answer = await builder.layer(archiveOf(path, source), this.#mostBytes)
      requireBuilt(name, answer, this.#settings.quota)
      digest = answer.diffId
    }
    const recipe = { name, source, digest: '', layers: [], config: noConfig, hasNode: false, fill }
    return this.#make(recipe, progress, signal, () => digest)
  }

  async #build(name: string, packages: readonly string[], progress: Report, signal: AbortSignal): Promise<ImageRecord> {
    return this.#turns.run('packages', async () => {
      const user = this.#machine.ids.lease()
      const dir = join(this.#settings.home, 'packages')
      try {
        const options = { image: name, dir, uid: user.first, progress, signal }
        const { dir: selected, first, digest } = await downloadPackages(packages, options)
        const known = this.#keeper.known(digest)
        if (known !== undefined) return this.#keeper.keep(withName(known, name))
        const fill = async (builder: Builder) => {
          const report = (detail: string) => progress({ step: 'installing', detail, done: 0, total: 0 })
          requireBuilt(name, await builder.install(first, report), this.#settings.quota)
        }
        const about = { name, source: 'packages', digest, layers: [], config: noConfig, hasNode: true } as const
        return await this.#make({ ...about, packages: selected, fill }, progress, signal)
      } finally {
        await rm(join(dir, 'selected'), { recursive: true, force: true })
        user.release()
      }
    })
  }

  /** One image is made at a time: each takes two processors. */
  async #make(
    recipe: ImageRecipe,
    progress: Report,
    signal: AbortSignal,
    digestOf = () => recipe.digest,
  ): Promise<ImageRecord> {
    return this.#turns.run('make', async () => {
      signal.throwIfAborted()
      const record = await this.#maker.make(recipe, progress, signal)
      return this.#keeper.keep({ ...record, digest: digestOf() })
    })
  }

  /** A layer may be larger than its files, since later layers remove some, but not without a limit. */
  get #mostBytes(): number {
    return 2 * this.#settings.quota.bytes
  }

  #fetchOptions(name: string, progress: Report, signal: AbortSignal): FetchOptions {
    return {
      name,
      blobs: this.#blobs,
      bytesMax: this.#mostBytes,
      needs: (digests) => this.#needed.set(signal, digests),
      progress,
      signal,
    }
  }
}

const withName = (record: ImageRecord, name: string): ImageRecord => ({
  ...record,
  names: [...new Set([...record.names, name])],
})

/** The files of a directory as an archive, as tar(1) reads them. */
async function* archiveOf(path: string, kind: 'directory' | 'archive'): AsyncGenerator<Buffer> {
  const [program, ...args] =
    kind === 'archive'
      ? ['cat', '--', path]
      : ['tar', '--create', '--numeric-owner', '--one-file-system', '--format=pax', '--directory', path, '.']
  const reader = spawn(program!, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: '/usr/bin:/bin', LC_ALL: 'C.UTF-8' },
  })
  let said = ''
  reader.stderr.on('data', (text: Buffer) => {
    said = (said + text.toString('utf8')).slice(-500)
  })
  const exited = new Promise<number | null>((resolve) => {
    reader.on('error', () => resolve(null))
    reader.on('close', resolve)
  })
  try {
    for await (const piece of reader.stdout) yield piece as Buffer
    // Files that change while they are read are no error: tar exits with 1 then.
    if (((await exited) ?? 2) > 1)
      throw new Refusal('image_invalid', { image: path, problem: said.trim() || 'it cannot be read' })
  } finally {
    reader.kill('SIGKILL')
  }
}
