import type { ImageCounts, ImageType } from '../../base/run.ts'
import { GuestProtocolError } from '../slots/guest-channel.ts'
import { pictureWindowBytes } from '../slots/run-slot.ts'
import { PictureReader } from './picture-reader.ts'

/** Maximum number of bytes that a program can write to its image channel before it is stopped. */
export const picturesHardBytes = 64 * 1024 * 1024

/** Receives the image data of the guest and enforces its credit. */
export class PictureIntake {
  readonly #reader: PictureReader
  #bytes = 0
  #creditBytes = pictureWindowBytes
  #owedBytes = 0

  /** @param onImage called with each image, in a separate buffer. */
  constructor(onImage: (mimeType: ImageType, bytes: Buffer) => void) {
    this.#reader = new PictureReader(onImage)
  }

  get isTooMuch(): boolean {
    return this.#bytes > picturesHardBytes
  }

  /**
   * BOUNDARY: receives the next bytes.
   * @returns the credit to grant now, also while the run is being killed; can be 0.
   * @throws GuestProtocolError for data without credit, and for empty data.
   */
  take(bytes: Buffer): number {
    // No limit would stop a flood of empty frames.
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
