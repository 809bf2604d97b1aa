import type { ImageType } from '../../base/run.ts'

/** Maximum number of pixels per side. Larger images can exhaust the memory of a client that decodes them. */
const sideMax = 16_384

const isSide = (pixels: number): boolean => pixels > 0 && pixels <= sideMax

/** BOUNDARY: returns whether bytes from a program are a complete image of the declared format. */
export function isPicture(mimeType: ImageType, bytes: Buffer): boolean {
  switch (mimeType) {
    case 'image/png':
      return isPng(bytes)
    case 'image/jpeg':
      return isJpeg(bytes)
  }
}

const pngBegin = Buffer.of(0x89, 0x50, 0x4e, 0x47, 13, 10, 0x1a, 10, 0, 0, 0, 13, 0x49, 0x48, 0x44, 0x52) // … IHDR
const pngEnd = Buffer.of(0, 0, 0, 0, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82) // IEND

/** https://www.w3.org/TR/png-3/#11IHDR */
function isPng(bytes: Buffer): boolean {
  if (bytes.length < 45 || !bytes.subarray(0, 16).equals(pngBegin)) return false
  return isSide(bytes.readUInt32BE(16)) && isSide(bytes.readUInt32BE(20)) && bytes.subarray(-12).equals(pngEnd)
}

/** Begins a frame, which has the dimensions: 0xC0 to 0xCF without DHT, JPG and DAC. https://www.w3.org/Graphics/JPEG/itu-t81.pdf */
const isFrame = (marker: number): boolean => (marker & 0xf0) === 0xc0 && ![0xc4, 0xc8, 0xcc].includes(marker)

function isJpeg(bytes: Buffer): boolean {
  const isFramed = bytes.length > 4 && bytes.readUInt16BE(0) === 0xffd8
  if (!isFramed || bytes.readUInt16BE(bytes.length - 2) !== 0xffd9) return false
  for (let at = 2; at + 9 <= bytes.length; at += 2 + bytes.readUInt16BE(at + 2)) {
    if (bytes[at] !== 0xff) return false
    if (isFrame(bytes[at + 1]!)) return isSide(bytes.readUInt16BE(at + 5)) && isSide(bytes.readUInt16BE(at + 7))
  }
  return false
}
