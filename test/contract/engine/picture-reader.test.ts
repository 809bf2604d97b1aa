import { crc32, deflateSync } from 'node:zlib'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { imageBounds } from '../../../src/base/run.ts'
import { isPicture } from '../../../src/engine/pictures/picture-format.ts'
import { PictureReader } from '../../../src/engine/pictures/picture-reader.ts'

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data])
  const framed = Buffer.alloc(body.length + 8)
  framed.writeUInt32BE(data.length, 0)
  body.copy(framed, 4)
  framed.writeUInt32BE(crc32(body), body.length + 4)
  return framed
}

/** A gray PNG, enlarged by a text chunk. */
function png(width = 1, height = 1, textBytes = 0): Buffer {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header[8] = 8
  return Buffer.concat([
    Buffer.from('89504e470d0a1a0a', 'hex'),
    chunk('IHDR', header),
    chunk('tEXt', Buffer.alloc(textBytes, 'a')),
    chunk('IDAT', deflateSync(Buffer.alloc(2))),
    chunk('IEND', Buffer.alloc(0)),
  ])
}

const jpeg = (width = 1, height = 1): Buffer => {
  const frame = Buffer.from('ffc0000b080000000001011100', 'hex')
  frame.writeUInt16BE(height, 5)
  frame.writeUInt16BE(width, 7)
  // The coded data has a stuffed byte and a restart.
  const scan = Buffer.from('ffda0008010100003f0012ff00ffd034', 'hex')
  return Buffer.concat([Buffer.from('ffd8ffe000044a46', 'hex'), frame, scan, Buffer.from('ffd9', 'hex')])
}

/** Like `png()`, with chunks of one's own behind the header. */
const pngOf = (...chunks: Buffer[]): Buffer =>
  Buffer.concat([png().subarray(0, 33), ...chunks, chunk('IEND', Buffer.alloc(0))])

/** A copy in which one byte is another one. */
function changed(image: Buffer, at: number): Buffer {
  const copy = Buffer.from(image)
  copy[at]! ^= 1
  return copy
}

const asHex = (text: string): string => Buffer.from(text).toString('hex')
const frameHex = 'ffc0000b080001000101011100'
const scanHex = 'ffda0008010100003f001234'
const jpegOf = (...hex: string[]): Buffer => Buffer.from(hex.join(''), 'hex')

function record(image: Buffer, format = 1, kind = 1, sizeBytes = image.length): Buffer {
  const header = Buffer.alloc(8)
  header.writeUInt32LE(sizeBytes, 0)
  header[4] = kind
  header[5] = format
  return Buffer.concat([header, image])
}

function read(...pieces: Buffer[]) {
  const images: [string, number][] = []
  const reader = new PictureReader((mimeType, bytes) => images.push([mimeType, bytes.length]))
  for (const piece of pieces) reader.push(piece)
  return { images, counts: reader.end() }
}

describe('images from a program', () => {
  it('are read completely, for every split of the data', () => {
    const stream = Buffer.concat([record(png()), record(jpeg(), 2), record(png(3, 4))])
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: stream.length })), (cuts) => {
        const at = [0, ...cuts.sort((a, b) => a - b), stream.length]
        const pieces = at.slice(1).map((end, index) => stream.subarray(at[index], end))
        const { images, counts } = read(...pieces)
        expect(images.map(([mimeType]) => mimeType)).toEqual(['image/png', 'image/jpeg', 'image/png'])
        expect(counts).toEqual({ shown: 3, dropped: 0, ignored: false })
      }),
    )
  })

  it('are absent for empty data', () => {
    expect(read()).toEqual({ images: [], counts: undefined })
  })

  it('are returned up to a number and a size, and counted beyond', () => {
    const many = Array.from({ length: imageBounds.count + 3 }, () => record(png()))
    expect(read(...many).counts).toEqual({ shown: imageBounds.count, dropped: 3, ignored: false })
    const large = record(png(1, 1, imageBounds.bytesOfOne - 200))
    expect(read(large, large, large, record(png())).counts).toEqual({ shown: 3, dropped: 1, ignored: false })
    expect(read(record(png(1, 1, imageBounds.bytesOfOne)), record(png())).counts).toMatchObject({
      shown: 1,
      dropped: 1,
    })
  })

  it('that are truncated count as dropped', () => {
    expect(read(record(png()), record(png()).subarray(0, 40)).counts).toEqual({ shown: 1, dropped: 1, ignored: false })
    expect(read(Buffer.from([1, 0])).counts).toEqual({ shown: 0, dropped: 1, ignored: false })
  })

  it.each([
    ['no record', Buffer.from('any text that somebody wrote')],
    ['another kind', record(png(), 1, 2)],
    ['another format', record(png(), 3)],
    ['an image of nothing', record(Buffer.alloc(0))],
    ['an image of 4 GiB', record(png(), 1, 1, 2 ** 32 - 1)],
    ['text that is said to be a PNG', record(Buffer.alloc(100, 'x'))],
    ['a PNG that is said to be a JPEG', record(png(), 2)],
    ['a PNG without pixels', record(png(0, 1))],
    ['a PNG of many pixels', record(png(65_536, 65_536))],
    ['a PNG with more behind it', record(Buffer.concat([png(), Buffer.from('<script>')]))],
    ['a PNG whose header and end enclose text', record(pngOf(Buffer.from('<script>alert(1)</script>')))],
    ['a PNG with a changed byte of its pixels', record(changed(png(), png().length - 20))],
    ['a PNG with a changed checksum', record(changed(png(), 32))],
    ['a PNG without pixel data', record(pngOf(chunk('tEXt', Buffer.alloc(3))))],
    ['a PNG with a chunk beyond its end', record(pngOf(Buffer.from('7fffffff49444154', 'hex')))],
    ['a PNG with two headers', record(pngOf(png().subarray(8, 33), chunk('IDAT', Buffer.alloc(2))))],
    ['a JPEG with a frame and text up to its end', record(jpegOf('ffd8', frameHex, asHex('<script>'), 'ffd9'), 2)],
    ['a JPEG without coded data', record(jpegOf('ffd8', frameHex, 'ffd9'), 2)],
    ['a JPEG that is cut off in its coded data', record(jpegOf('ffd8', frameHex, scanHex), 2)],
    ['a JPEG with more behind its end', record(jpegOf('ffd8', frameHex, scanHex, 'ffd9', asHex('<b>'), 'ffd9'), 2)],
    ['a JPEG with a segment beyond its end', record(jpegOf('ffd8', frameHex, 'ffe0ffff', scanHex, 'ffd9'), 2)],
    ['a JPEG without a frame', record(Buffer.from('ffd8ffe000044a46ffd9', 'hex'), 2)],
    ['a JPEG of many pixels', record(jpeg(65_535, 1), 2)],
  ])('ends with %s, and ignores everything after it', (_what, bytes) => {
    const { images, counts } = read(record(png()), bytes, record(png()))
    expect([images.length, counts]).toEqual([1, { shown: 1, dropped: 0, ignored: true }])
  })

  it('never make the reader throw, for arbitrary bytes', () => {
    const signature = fc.constantFrom(png(), jpeg())
    fc.assert(
      fc.property(
        signature,
        fc.array(fc.tuple(fc.nat(200), fc.nat(255))),
        fc.constantFrom(1, 2),
        (image, edits, format) => {
          const edited = Buffer.from(image)
          for (const [at, byte] of edits) edited[at % edited.length] = byte
          expect(typeof isPicture('image/png', edited) && typeof isPicture('image/jpeg', edited)).toBe('boolean')
          const { counts } = read(record(edited, format))
          expect((counts?.shown ?? 0) + (counts?.dropped ?? 0) + Number(counts?.ignored)).toBe(1)
        },
      ),
    )
  })
})
