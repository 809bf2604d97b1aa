/** Decodes PNG images: https://www.w3.org/TR/png-3/ */
import { inflateSync } from 'node:zlib'

/** Pixels in rows from the top, three bytes for each: red, green and blue. */
export interface Pixels {
  width: number
  height: number
  rgb: Uint8Array
}

/** A larger image is not shown, only saved: it would not fit on a screen. */
const maxPixels = 4 * 1024 * 1024
const signatureBytes = 8

interface Header {
  width: number
  height: number
  bitDepth: number
  colorType: number
}

/** Channels of each color type: gray, RGB, palette, gray with alpha, RGB with alpha. */
const channelsOf: Readonly<Record<number, number>> = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 }

/**
 * Decodes an image on a white background. BOUNDARY: the bytes come from a sandbox.
 * @returns `undefined` if it is damaged, interlaced, too large, or has another depth than 8 bits.
 */
export function decodePng(bytes: Buffer): Pixels | undefined {
  const { header, palette, data } = readChunks(bytes)
  const channels = header && channelsOf[header.colorType]
  if (!header || channels === undefined || header.bitDepth !== 8) return undefined
  const { width, height } = header
  if (width === 0 || height === 0 || width * height > maxPixels) return undefined
  const rowBytes = width * channels
  const raw = inflated(data, (rowBytes + 1) * height)
  if (raw?.length !== (rowBytes + 1) * height) return undefined
  const rows = unfiltered(raw, rowBytes, height, channels)
  return rows && { width, height, rgb: toRgb(rows, header, palette) }
}

function readChunks(bytes: Buffer): { header: Header | undefined; palette: Buffer; data: Buffer } {
  let header: Header | undefined
  let palette = Buffer.alloc(0)
  const data: Buffer[] = []
  for (let at = signatureBytes; at + 8 <= bytes.length; ) {
    const length = bytes.readUInt32BE(at)
    const content = bytes.subarray(at + 8, at + 8 + length)
    switch (bytes.toString('latin1', at + 4, at + 8)) {
      case 'IHDR':
        header = readHeader(content)
        break
      case 'PLTE':
        palette = content as Buffer<ArrayBuffer>
        break
      case 'IDAT':
        data.push(content)
    }
    at += length + 12
  }
  return { header, palette, data: Buffer.concat(data) }
}

function readHeader(content: Buffer): Header | undefined {
  const isInterlaced = content[12] !== 0
  if (content.length !== 13 || isInterlaced) return undefined
  return {
    width: content.readUInt32BE(0),
    height: content.readUInt32BE(4),
    bitDepth: content[8]!,
    colorType: content[9]!,
  }
}

function inflated(data: Buffer, maxOutputLength: number): Buffer | undefined {
  try {
    return inflateSync(data, { maxOutputLength })
  } catch {
    return undefined
  }
}

/** Undoes the filter of each row. */
function unfiltered(raw: Buffer, rowBytes: number, height: number, channels: number): Uint8Array | undefined {
  const rows = new Uint8Array(rowBytes * height)
  for (let y = 0; y < height; y++) {
    const filter = raw[y * (rowBytes + 1)]!
    if (filter > 4) return undefined
    const from = y * (rowBytes + 1) + 1
    const to = y * rowBytes
    for (let x = 0; x < rowBytes; x++) {
      const left = x >= channels ? rows[to + x - channels]! : 0
      const up = y > 0 ? rows[to + x - rowBytes]! : 0
      const upLeft = y > 0 && x >= channels ? rows[to + x - rowBytes - channels]! : 0
      rows[to + x] = raw[from + x]! + predicted(filter, left, up, upLeft)
    }
  }
  return rows
}

function predicted(filter: number, left: number, up: number, upLeft: number): number {
  switch (filter) {
    case 1:
      return left
    case 2:
      return up
    case 3:
      return (left + up) >> 1
    case 4: {
      const estimate = left + up - upLeft
      const [a, b, c] = [Math.abs(estimate - left), Math.abs(estimate - up), Math.abs(estimate - upLeft)]
      return a <= b && a <= c ? left : b <= c ? up : upLeft
    }
    default:
      return 0
  }
}

function toRgb(rows: Uint8Array, { width, height, colorType }: Header, palette: Buffer): Uint8Array {
  const channels = channelsOf[colorType]!
  const hasAlpha = colorType === 4 || colorType === 6
  const rgb = new Uint8Array(width * height * 3)
  for (let pixel = 0; pixel < width * height; pixel++) {
    const at = pixel * channels
    const alpha = hasAlpha ? rows[at + channels - 1]! / 255 : 1
    for (let channel = 0; channel < 3; channel++) {
      const value =
        colorType === 3
          ? (palette[rows[at]! * 3 + channel] ?? 0)
          : rows[at + (colorType >= 2 && colorType !== 4 ? channel : 0)]!
      rgb[pixel * 3 + channel] = Math.round(value * alpha + 255 * (1 - alpha))
    }
  }
  return rgb
}
