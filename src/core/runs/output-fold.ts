import { HeadAndTail } from '../../base/head-and-tail.ts'
import { imageBounds, type ShownImage, type Stream } from '../../base/run.ts'
import type { KeptOutput, KeptStream } from '../../store/store.ts'
import { type OutputEvent, OutputOrder } from './output-order.ts'

/**
 * Combines the output events of one run into the output that is stored. Memory use stays below four times `keptBytes` plus
 * the limits of images, regardless of the input.
 */
export class OutputFold {
  readonly #streams: Record<Stream, HeadAndTail>
  readonly #order = new OutputOrder()
  readonly #images: ShownImage[] = []

  /** @param keptBytes limit for the head and for the tail of each stream, in bytes. */
  constructor(keptBytes: number) {
    const limit = Math.max(keptBytes, 1)
    this.#streams = { stdout: new HeadAndTail(limit, limit), stderr: new HeadAndTail(limit, limit) }
  }

  add(event: OutputEvent): void {
    this.#order.add(event)
    switch (event.kind) {
      case 'output':
        this.#streams[event.stream].append(event.bytes)
        return
      case 'gap':
        this.#streams[event.stream].skip(event.bytes)
        return
      case 'image':
        if (this.#images.length < imageBounds.count) this.#images.push({ mimeType: event.mimeType, bytes: event.bytes })
    }
  }

  /** Returns the output so far; valid until the next event is added. */
  kept(): KeptOutput {
    const { stdout, stderr } = this.#streams
    const order = this.#order.keep()
    return { stdout: toKept(stdout), stderr: toKept(stderr), images: [...this.#images], ...(order && { order }) }
  }
}

const toKept = ({ head, omittedBytes, tail }: HeadAndTail): KeptStream => ({ head, omittedBytes, tail })
