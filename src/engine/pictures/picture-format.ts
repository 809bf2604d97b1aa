import { crc32 } from 'node:zlib'
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

const pngSignature = Buffer.of(0x89, 0x50, 0x4e, 0x47, 13, 10, 0x1a, 10)
/** Length, type and checksum of a chunk. */
const chunkBytes = 12
const chunkType = /^[A-Za-z]{4}$/

/** A sequence of intact chunks, from IHDR over at least one IDAT to IEND: https://www.w3.org/TR/png-3/#5Chunk-layout */
function isPng(bytes: Buffer): boolean {
  if (!bytes.subarray(0, 8).equals(pngSignature)) return false
  let hasPixels = false
  for (let at = 8; at + chunkBytes <= bytes.length; ) {
    const end = at + chunkBytes + bytes.readUInt32BE(at)
    if (end > bytes.length || crc32(bytes.subarray(at + 4, end - 4)) !== bytes.readUInt32BE(end - 4)) return false
    const type = bytes.toString('latin1', at + 4, at + 8)
    if (at === 8 ? type !== 'IHDR' || !isPngHeader(bytes.subarray(at + 8, end - 4)) : type === 'IHDR') return false
    if (!chunkType.test(type)) return false
    if (type === 'IEND') return hasPixels && end === bytes.length
    hasPixels ||= type === 'IDAT'
    at = end
  }
  return false
}

/** https://www.w3.org/TR/png-3/#11IHDR */
const isPngHeader = (header: Buffer): boolean =>
  header.length === 13 && isSide(header.readUInt32BE(0)) && isSide(header.readUInt32BE(4))

const startOfImage = 0xd8
const endOfImage = 0xd9
const startOfScan = 0xda

/** Begins a frame, which has the dimensions: 0xC0 to 0xCF without DHT, JPG and DAC. https://www.w3.org/Graphics/JPEG/itu-t81.pdf */
const isFrame = (marker: number): boolean => (marker & 0xf0) === 0xc0 && ![0xc4, 0xc8, 0xcc].includes(marker)

/** Has no length: a restart within a scan, or TEM. */
const standsAlone = (marker: number): boolean => (marker >= 0xd0 && marker <= 0xd7) || marker === 0x01

/** A sequence of whole segments with a frame and a scan after it, up to the end of the image, behind which nothing follows. */
function isJpeg(bytes: Buffer): boolean {
  if (bytes.length < 4 || bytes[0] !== 0xff || bytes[1] !== startOfImage) return false
  let hasFrame = false
  let hasScan = false
  for (let at = 2; at + 2 <= bytes.length; ) {
    if (bytes[at] !== 0xff) return false
    const marker = bytes[at + 1]!
    if (marker === endOfImage) return hasScan && at + 2 === bytes.length
    if (marker === 0xff)
      at += 1 // Fills up to the next marker.
    else if (standsAlone(marker)) at += 2
    else {
      if (at + 4 > bytes.length) return false
      const end = at + 2 + bytes.readUInt16BE(at + 2)
      if (marker === 0 || marker === startOfImage || end < at + 4 || end > bytes.length) return false
      if (isFrame(marker)) {
        if (end < at + 9 || !isSide(bytes.readUInt16BE(at + 5)) || !isSide(bytes.readUInt16BE(at + 7))) return false
        hasFrame = true
      }
      if (marker === startOfScan && !hasFrame) return false
      hasScan ||= marker === startOfScan
      at = marker === startOfScan ? endOfScan(bytes, end) : end
    }
  }
  return false
}

/** Returns where the coded data that begins at an offset ends: at the next marker that is no restart. */
function endOfScan(bytes: Buffer, begin: number): number {
  for (let at = bytes.indexOf(0xff, begin); at >= 0 && at + 1 < bytes.length; at = bytes.indexOf(0xff, at + 1)) {
    const next = bytes[at + 1]!
    if (next !== 0 && !standsAlone(next)) return at
  }
  return bytes.length
}
