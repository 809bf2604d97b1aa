import { type ImageCounts, type ImageType, imageBounds } from '../../base/run.ts'
import { isPicture } from './picture-format.ts'

const headerBytes = 8
const imageKind = 1
const formats: Readonly<Record<number, ImageType>> = { 1: 'image/png', 2: 'image/jpeg' }

/** A header that declares a larger image is invalid; images between the limit and this size are counted and dropped. */
const believableBytes = 256 * 1024 * 1024

interface Coming {
  mimeType: ImageType
  /** Absent if the image is dropped. */
  bytes: Buffer | undefined
  sizeBytes: number
  filled: number
}

/**
 * BOUNDARY: splits the data of a program's image channel into images. Data that violates guest/PROTOCOL.md, and images that
 * do not match their declared format, close the channel: everything after them is ignored.
 */
export class PictureReader {
  readonly #onImage: (mimeType: ImageType, bytes: Buffer) => void
  readonly #header = Buffer.alloc(headerBytes)
  #headerFilled = 0
  #coming: Coming | undefined
  #keptBytes = 0
  #shown = 0
  #dropped = 0
  #ignored = false

  /** @param onImage called with each image, in a separate buffer. */
  constructor(onImage: (mimeType: ImageType, bytes: Buffer) => void) {
    this.#onImage = onImage
  }

  /** Receives the next bytes, which can start or end anywhere in a record. */
  push(chunk: Buffer): void {
    let rest = chunk
    while (rest.length > 0 && !this.#ignored) rest = this.#coming ? this.#fill(this.#coming, rest) : this.#begin(rest)
  }

  /** Returns the counts at the end of the data; `undefined` if there was none. */
  end(): ImageCounts | undefined {
    if (!this.#ignored && (this.#coming || this.#headerFilled > 0)) this.#dropped += 1
    this.#coming = undefined
    if (this.#shown + this.#dropped === 0 && !this.#ignored) return undefined
    return { shown: this.#shown, dropped: this.#dropped, ignored: this.#ignored }
  }

  #begin(chunk: Buffer): Buffer {
    const taken = chunk.copy(this.#header, this.#headerFilled, 0, headerBytes - this.#headerFilled)
    this.#headerFilled += taken
    if (this.#headerFilled < headerBytes) return chunk.subarray(taken)
    this.#headerFilled = 0
    const sizeBytes = this.#header.readUInt32LE(0)
    const mimeType = formats[this.#header.readUInt8(5)]
    const isRecord = this.#header.readUInt8(4) === imageKind && this.#header.readUInt16LE(6) === 0
    if (!isRecord || mimeType === undefined || sizeBytes === 0 || sizeBytes > believableBytes) this.#ignored = true
    else this.#coming = { mimeType, bytes: this.#roomFor(sizeBytes), sizeBytes, filled: 0 }
    return chunk.subarray(taken)
  }

  #roomFor(sizeBytes: number): Buffer | undefined {
    const { count, bytes, bytesOfOne } = imageBounds
    const fits = this.#shown < count && sizeBytes <= bytesOfOne && this.#keptBytes + sizeBytes <= bytes
    return fits ? Buffer.allocUnsafeSlow(sizeBytes) : undefined
  }

  #fill(coming: Coming, chunk: Buffer): Buffer {
    const taken = Math.min(chunk.length, coming.sizeBytes - coming.filled)
    if (coming.bytes) chunk.copy(coming.bytes, coming.filled, 0, taken)
    coming.filled += taken
    if (coming.filled === coming.sizeBytes) this.#finish(coming)
    return chunk.subarray(taken)
  }

  #finish({ mimeType, bytes }: Coming): void {
    this.#coming = undefined
    if (bytes === undefined) this.#dropped += 1
    else if (isPicture(mimeType, bytes)) {
      this.#shown += 1
      this.#keptBytes += bytes.length
      this.#onImage(mimeType, bytes)
    } else this.#ignored = true
  }
}
