import { lstat, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { crc32, deflateSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { FigureFiles } from '../../../src/cli/figures/figure-files.ts'
import { inlineImage, protocolOf } from '../../../src/cli/figures/inline-image.ts'
import { decodePng } from '../../../src/cli/figures/png.ts'
import { withCommandIo } from '../../support/command-io.ts'

let directory: string
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'glovebox-figures-'))
})
afterAll(() => rm(directory, { recursive: true }))

function chunk(type: string, content: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type), content])
  const [length, checksum] = [Buffer.alloc(4), Buffer.alloc(4)]
  length.writeUInt32BE(content.length)
  checksum.writeUInt32BE(crc32(body))
  return Buffer.concat([length, body, checksum])
}

/** A PNG of these rows, each with its filter byte first. */
function png(width: number, colorType: number, rows: number[][], more: Buffer[] = []): Buffer {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(rows.length, 4)
  header.set([8, colorType, 0, 0, 0], 8)
  return Buffer.concat([
    Buffer.from('89504e470d0a1a0a', 'hex'),
    chunk('IHDR', header),
    ...more,
    chunk('IDAT', deflateSync(Buffer.from(rows.flat()))),
    chunk('IEND', Buffer.alloc(0)),
  ])
}

const twoPixels = png(2, 2, [[0, 255, 0, 0, 0, 0, 255]])
const lineOf = (bytes: Buffer, mime_type = 'image/png') => ({ mime_type, data_base64: bytes.toString('base64') })

/** Adds images as a run would. */
async function show(images: Buffer[], place: { directory: string; stem: string } | undefined, more = {}) {
  let figures: FigureFiles | undefined
  const outcome = await withCommandIo(async (io) => {
    figures = new FigureFiles(place, io, false)
    for (const image of images) await figures.add(lineOf(image))
    return figures.failed ? 1 : 0
  }, more)
  return { ...outcome, saved: figures?.saved }
}

describe('figures of a run', () => {
  it('are saved in order, and their names printed', async () => {
    const place = { directory: join(directory, 'new'), stem: 'plot-figure' }
    const other = png(1, 0, [[0, 7]])
    const { code, stdout, stderr, saved } = await show([twoPixels, other], place)
    expect([code, stdout.length]).toEqual([0, 0])
    const [first, second] = ['plot-figure-1.png', 'plot-figure-2.png'].map((name) => join(place.directory, name))
    expect(saved).toEqual([first, second])
    expect(stderr).toBe(`glovebox run: figure saved: ${first}\nglovebox run: figure saved: ${second}\n`)
    expect(await readFile(second!)).toEqual(other)
    expect((await readdir(place.directory)).length).toBe(2)
  })

  it('replace a link with their name instead of following it', async () => {
    const kept = join(directory, 'kept')
    await writeFile(kept, 'kept')
    await symlink(kept, join(directory, 'a-1.png'))
    expect((await show([twoPixels], { directory, stem: 'a' })).code).toBe(0)
    expect(await readFile(kept, 'utf8')).toBe('kept')
    expect((await lstat(join(directory, 'a-1.png'))).isFile()).toBe(true)
  })

  it('are reported where they cannot be saved', async () => {
    await writeFile(join(directory, 'file'), '')
    const { code, stderr } = await show([twoPixels], { directory: join(directory, 'file'), stem: 'a' })
    expect([code, stderr]).toEqual([1, expect.stringMatching(/cannot save the figure .*a-1\.png/)])
  })

  it('are shown in terminals that can show them, and nowhere else', async () => {
    const kitty = { KITTY_WINDOW_ID: '1' }
    const shown = await show([twoPixels], undefined, { terminals: ['stdout'], env: kitty })
    expect(shown.stdout.toString()).toBe(`\x1b_Ga=T,f=100,q=2,m=0;${twoPixels.toString('base64')}\x1b\\\n`)
    expect((await show([twoPixels], undefined, { env: kitty })).stdout.length).toBe(0)
    expect((await show([twoPixels], undefined, { terminals: ['stdout'] })).stdout.length).toBe(0)
  })
})

describe('the image protocol of a terminal', () => {
  it.each([
    [{ TERM: 'xterm-kitty' }, 'kitty'],
    [{ TERM: 'xterm-ghostty' }, 'kitty'],
    [{ TERM_PROGRAM: 'iTerm.app' }, 'iterm'],
    [{ TERM_PROGRAM: 'WezTerm', TERM: 'xterm-256color' }, 'iterm'],
    [{ LC_TERMINAL: 'iTerm2' }, 'iterm'],
    [{ TERM: 'foot' }, 'sixel'],
    [{ TERM: 'xterm-sixel' }, 'sixel'],
    [{ TERM: 'xterm-256color' }, undefined],
    [{ TERM: 'tmux-256color', KITTY_WINDOW_ID: '1' }, undefined],
    [{ TERM: 'xterm-kitty', TMUX: '/tmp/tmux' }, undefined],
  ])('of %j is %s', (env: Record<string, string>, expected) => {
    expect(protocolOf(env)).toBe(expected)
  })

  it('splits a large image for kitty, and shows a JPEG only where that is possible', () => {
    const large = Buffer.alloc(7_000)
    const pieces = inlineImage(large, 'image/png', 'kitty')!.split('\x1b\\').filter(Boolean)
    expect(pieces.map((piece) => piece.slice(0, piece.indexOf(';') + 1))).toEqual([
      '\x1b_Ga=T,f=100,q=2,m=1;',
      '\x1b_Gm=1;',
      '\x1b_Gm=0;',
    ])
    expect(pieces.map((piece) => piece.split(';')[1]).join('')).toBe(large.toString('base64'))
    expect(inlineImage(large, 'image/jpeg', 'kitty')).toBeUndefined()
    expect(inlineImage(large, 'image/jpeg', 'sixel')).toBeUndefined()
    expect(inlineImage(Buffer.from('x'), 'image/jpeg', 'iterm')).toBe('\x1b]1337;File=inline=1;size=1:eA==\x07')
  })

  it('encodes pixels as sixels', () => {
    expect(inlineImage(twoPixels, 'image/png', 'sixel')).toBe(
      '\x1bP0;1;0q"1;1;2;1#180;2;100;0;0#5;2;0;0;100#180@?$#5?@\x1b\\',
    )
    const wide = png(
      2_000,
      0,
      Array.from({ length: 14 }, () => [0, ...new Array<number>(2_000).fill(255)]),
    )
    // A third of the size: 666 × 4 white pixels.
    expect(inlineImage(wide, 'image/png', 'sixel')).toBe('\x1bP0;1;0q"1;1;666;4#215;2;100;100;100#215!666N\x1b\\')
  })
})

describe('a PNG', () => {
  it('is decoded with every filter and color type', () => {
    const rows = [
      [1, 10, 20, 30, 1, 1, 1],
      [2, 1, 1, 1, 1, 1, 1],
      [3, 0, 0, 0, 0, 0, 0],
      [4, 1, 1, 1, 2, 2, 2],
    ]
    expect([...decodePng(png(2, 2, rows))!.rgb]).toEqual([
      ...[10, 20, 30, 11, 21, 31],
      ...[11, 21, 31, 12, 22, 32],
      ...[5, 10, 15, 8, 16, 23],
      ...[6, 11, 16, 10, 18, 25],
    ])
    expect([...decodePng(png(2, 0, [[0, 7, 9]]))!.rgb]).toEqual([7, 7, 7, 9, 9, 9])
    const palette = chunk('PLTE', Buffer.from([1, 2, 3, 4, 5, 6]))
    expect([...decodePng(png(2, 3, [[0, 1, 0]], [palette]))!.rgb]).toEqual([4, 5, 6, 1, 2, 3])
    expect([...decodePng(png(2, 4, [[0, 100, 255, 100, 0]]))!.rgb]).toEqual([100, 100, 100, 255, 255, 255])
    expect([...decodePng(png(1, 6, [[0, 0, 100, 200, 255]]))!.rgb]).toEqual([0, 100, 200])
  })

  it('that is damaged or too large is not decoded', () => {
    const whole = png(2, 2, [[0, 255, 0, 0, 0, 0, 255]])
    const huge = Buffer.from(whole)
    huge.writeUInt32BE(16_384, 16)
    huge.writeUInt32BE(16_384, 20)
    const bomb = png(2, 0, [new Array<number>(1_000_000).fill(0)])
    const badFilter = png(1, 0, [[9, 0]])
    for (const bytes of [huge, bomb, badFilter, whole.subarray(0, 50), Buffer.alloc(0), Buffer.alloc(64, 0xff)]) {
      expect(decodePng(bytes)).toBeUndefined()
    }
  })
})
