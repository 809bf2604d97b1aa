import { Refusal } from '../../base/errors.ts'
import type { ImageProgress, StoredImage } from '../../base/image.ts'
import type { ImageToRunner } from '../protocol/image-messages.ts'
import type { FromRunner } from '../protocol/messages.ts'
import type { ImageRecord } from './image-index.ts'
import type { Images } from './images.ts'

/** Shortest time between two reports of a change, in milliseconds. */
const reportEveryMs = 200
/** Changes of one connection at the same time; they are made one after the other. */
const changesMax = 64

/** Handles the messages about images of one connection. */
export class ImageRequests {
  readonly #images: Images | undefined
  readonly #isRoot: boolean
  readonly #send: (message: FromRunner) => void
  readonly #refuse: (request: number, error: unknown) => void
  readonly #changes = new Map<number, AbortController>()

  /** @param isRoot whether the peer is root of the machine, who may name files of it. */
  constructor(
    images: Images | undefined,
    isRoot: boolean,
    send: (message: FromRunner) => void,
    refuse: (request: number, error: unknown) => void,
  ) {
    this.#images = images
    this.#isRoot = isRoot
    this.#send = send
    this.#refuse = refuse
  }

  handle(message: ImageToRunner): void {
    if (message.type === 'images_stop') {
      this.#changes.get(message.request)?.abort(new Refusal('unavailable', { reason: 'the change was stopped' }))
      return
    }
    this.#answer(message).then(this.#send, (error: unknown) => this.#refuse(message.request, error))
  }

  /** Ends every change: the connection is closed. */
  stop(): void {
    for (const change of this.#changes.values())
      change.abort(new Refusal('unavailable', { reason: 'the connection was closed' }))
  }

  async #answer(message: Exclude<ImageToRunner, { type: 'images_stop' }>): Promise<FromRunner> {
    const { request } = message
    const images = this.#images
    if (images === undefined) throw new Refusal('unavailable', { reason: 'this runner stores no images' })
    switch (message.type) {
      case 'images_list':
        return { type: 'images', request, images: images.list().map(toStoredImage) }
      case 'images_remove':
        await images.remove(message.name)
        return { type: 'ok', request }
      case 'images_collect':
        return { type: 'images_collected', request, collected: await images.collect() }
      case 'images_change':
        return { type: 'image_done', request, image: toStoredImage(await this.#change(images, message)) }
    }
  }

  async #change(
    images: Images,
    { request, change }: Extract<ImageToRunner, { type: 'images_change' }>,
  ): Promise<ImageRecord> {
    if (change.kind === 'import' && !this.#isRoot)
      throw new Refusal('forbidden', { need: 'root on the machine of the server: glovebox images import' })
    if (this.#changes.size >= changesMax) throw new Refusal('unavailable', { reason: 'too many changes of images' })
    const controller = new AbortController()
    this.#changes.set(request, controller)
    try {
      return await images.change(change, this.#reporter(request), controller.signal)
    } finally {
      this.#changes.delete(request)
    }
  }

  /** Reports each step at once, and its progress now and then. */
  #reporter(request: number): (progress: ImageProgress) => void {
    let last: ImageProgress | undefined
    let lastMs = 0
    return (progress) => {
      const isNew = last?.step !== progress.step || last.detail !== progress.detail
      if (!isNew && performance.now() - lastMs < reportEveryMs) return
      last = progress
      lastMs = performance.now()
      this.#send({ type: 'image_progress', request, progress })
    }
  }
}

const toStoredImage = ({ languages: _, hasNode: __, ...image }: ImageRecord): StoredImage => image
