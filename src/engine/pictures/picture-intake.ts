import type { ImageCounts, ImageType } from '../../base/run.ts'
import { GuestProtocolError } from '../slots/guest-channel.ts'
import { pictureWindowBytes } from '../slots/run-slot.ts'
import { PictureReader } from './picture-reader.ts'

/** Whatever is shown of it: a program that writes more for images is stopped, as one that prints too much. */
export const picturesHardBytes = 64 * 1024 * 1024

/** What the guest sends for images, held against the credit that it was given. */
export class PictureIntake {
  readonly #reader: PictureReader
  #bytes = 0
  #creditBytes = pictureWindowBytes
  #owedBytes = 0

  /** @param onImage told of each image, with bytes of its own. */
  constructor(onImage: (mimeType: ImageType, bytes: Buffer) => void) {
    this.#reader = new PictureReader(onImage)
  }

  get isTooMuch(): boolean {
    return this.#bytes > picturesHardBytes
  }

  /**
   * BOUNDARY: takes the next bytes.
   * @returns the credit that is to be given now, also while the run is being killed; 0: none yet.
   * @throws GuestProtocolError for bytes that it had no credit for, or none.
   */
  take(bytes: Buffer): number {
    // No limit would ever end a flood of these.
    if (bytes.length === 0) throw new GuestProtocolError('images of nothing')
    this.#creditBytes -= bytes.length
    if (this.#creditBytes < 0) throw new GuestProtocolError('more images than it had credit for')
    this.#bytes += bytes.length
    if (!this.isTooMuch) this.#reader.push(bytes)
    this.#owedBytes += bytes.length
    if (this.#owedBytes < pictureWindowBytes / 2) return 0
    const givenBytes = this.#owedBytes
    this.#creditBytes += givenBytes
    this.#owedBytes = 0
    return givenBytes
  }

  /** See `PictureReader`. */
  end(): ImageCounts | undefined {
    return this.#reader.end()
  }
}
