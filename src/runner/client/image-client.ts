import { dataImage, defaultImage, type ImageProgress, imageAliases, type StoredImage } from '../../base/image.ts'
import { noSoftware, type Software } from '../../base/software.ts'
import type { CollectedImages, ImageChange, ImageSoftware, RunnerImages } from '../protocol/image-messages.ts'
import type { FromRunner, ToRunner } from '../protocol/messages.ts'

interface Line {
  /** @param numbered receives the number of the request before it is sent. */
  ask(message: (request: number) => ToRunner, numbered?: (request: number) => void): Promise<FromRunner>
  send(message: ToRunner): void
}

/** The client of `images_*` in the front and in commands. */
export class ImageClient implements RunnerImages {
  readonly #line: Line
  readonly #following = new Map<number, (progress: ImageProgress) => void>()
  #known: ImageSoftware = { software: noSoftware, digest: '', named: {}, digests: {} }

  constructor(line: Line) {
    this.#line = line
  }

  /** The software of the default image. */
  get software(): Software {
    return this.#known.software
  }

  softwareOf(name: string): Software {
    const { software, named } = this.#known
    if (name === defaultImage) return software
    const alias = imageAliases.includes(name) ? (named[dataImage] ?? software) : noSoftware
    return named[name] ?? alias
  }

  digestOf(name: string): string | undefined {
    const { digest, digests } = this.#known
    const known = name === defaultImage ? digest : digests[name]
    return known ?? ((imageAliases.includes(name) ? (digests[dataImage] ?? digest) : undefined) || undefined)
  }

  async list(): Promise<readonly StoredImage[]> {
    const answer = await this.#line.ask((request) => ({ type: 'images_list', request }))
    if (answer.type !== 'images') throw unexpected(answer)
    return answer.images
  }

  async change(
    change: ImageChange,
    progress: (progress: ImageProgress) => void,
    signal?: AbortSignal,
  ): Promise<StoredImage> {
    let number = 0
    const stop = () => this.#line.send({ type: 'images_stop', request: number })
    try {
      const answer = await this.#line.ask(
        (request) => ({ type: 'images_change', request, change }),
        (request) => {
          number = request
          this.#following.set(request, progress)
          signal?.addEventListener('abort', stop, { once: true })
        },
      )
      if (answer.type !== 'image_done') throw unexpected(answer)
      return answer.image
    } finally {
      this.#following.delete(number)
      signal?.removeEventListener('abort', stop)
    }
  }

  async remove(name: string): Promise<void> {
    await this.#line.ask((request) => ({ type: 'images_remove', request, name }))
  }

  async collect(): Promise<CollectedImages> {
    const answer = await this.#line.ask((request) => ({ type: 'images_collect', request }))
    if (answer.type !== 'images_collected') throw unexpected(answer)
    return answer.collected
  }

  /** Receives progress, and what images have. */
  take(message: Extract<FromRunner, { type: 'image_progress' | 'software' }>): void {
    if (message.type === 'image_progress') this.#following.get(message.request)?.(message.progress)
    else this.#known = message
  }
}

const unexpected = ({ type }: FromRunner): Error => new Error(`the runner answered ${type} to a question about images`)
