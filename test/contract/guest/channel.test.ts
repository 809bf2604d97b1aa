import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  encodeBytes,
  encodePrepare,
  exitOf,
  type Frame,
  FrameDecoder,
  fromGuest,
  GuestProtocolError,
  maxFromGuestBytes,
  toGuest,
  u32Of,
} from '../../../src/engine/slots/guest-channel.ts'

const kinds = Object.values(fromGuest)

function wire(kind: number, run: number, payload: Uint8Array): Buffer {
  const header = Buffer.alloc(12)
  header.writeUInt32LE(payload.length, 0)
  header.writeUInt32LE(run, 4)
  header.writeUInt8(kind, 8)
  return Buffer.concat([header, payload])
}

/** Cuts bytes into the given lengths, repeating them. */
function cut(bytes: Buffer, lengths: readonly number[]): Buffer[] {
  const pieces: Buffer[] = []
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const length = lengths[turn % lengths.length] ?? 1
    pieces.push(bytes.subarray(at, at + length))
    at += length
  }
  return pieces
}

const frames = fc.array(
  fc.record({
    kind: fc.constantFrom(...kinds),
    run: fc.nat(0xffff_ffff),
    payload: fc.uint8Array({ maxLength: 300 }),
  }),
  { maxLength: 20 },
)
const lengths = fc.array(fc.integer({ min: 1, max: 700 }), { minLength: 1 })

describe('frames from a guest', () => {
  it('arrive unchanged for every split of the stream', () => {
    fc.assert(
      fc.property(frames, lengths, (sent, cuts) => {
        const decoder = new FrameDecoder()
        const got: { kind: number; run: number; payload: Uint8Array }[] = []
        const keep = ({ kind, run, payload }: Frame) => got.push({ kind, run, payload: new Uint8Array(payload) })
        const bytes = Buffer.concat(sent.map(({ kind, run, payload }) => wire(kind, run, payload)))
        for (const piece of cut(bytes, cuts)) decoder.push(piece, keep)
        expect(got).toEqual(sent)
        expect(decoder.unfinishedBytes).toBe(0)
      }),
    )
  })

  it('of the maximum size arrive, and one byte more is an error before any of it is stored', () => {
    const largest = new Uint8Array(maxFromGuestBytes).fill(7)
    const decoder = new FrameDecoder()
    const got: number[] = []
    for (const piece of cut(wire(fromGuest.stdout, 1, largest), [4_096]))
      decoder.push(piece, ({ payload }) => got.push(payload.length))
    expect(got).toEqual([maxFromGuestBytes])
    const tooLong = wire(fromGuest.stdout, 1, new Uint8Array(maxFromGuestBytes + 1)).subarray(0, 12)
    expect(() => new FrameDecoder().push(tooLong, () => undefined)).toThrow(GuestProtocolError)
  })

  it('never cause any error but the protocol error, nor store more than one frame, for arbitrary bytes', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 2_000 }), { maxLength: 20 }), (chunks) => {
        const decoder = new FrameDecoder()
        try {
          for (const chunk of chunks) {
            decoder.push(Buffer.from(chunk), ({ payload }) =>
              expect(payload.length).toBeLessThanOrEqual(maxFromGuestBytes),
            )
            expect(decoder.unfinishedBytes).toBeLessThan(12 + maxFromGuestBytes)
          }
        } catch (error) {
          expect(error).toBeInstanceOf(GuestProtocolError)
        }
      }),
    )
  })

  it('of unknown kinds, or with non-zero padding, are an error', () => {
    const good = wire(fromGuest.hello, 0, new Uint8Array(4))
    for (const [at, value] of [
      [8, 1],
      [8, 76],
      [9, 1],
      [10, 1],
      [11, 255],
    ] as const) {
      const bad = Buffer.from(good)
      bad[at] = value
      expect(() => new FrameDecoder().push(bad, () => undefined)).toThrow(GuestProtocolError)
    }
  })

  it('report only endings that a process can have', () => {
    const ending = (how: number, value: number, extra = 0) => {
      const payload = Buffer.alloc(5 + extra)
      payload.writeUInt8(how, 0)
      payload.writeUInt32LE(value, 1)
      return exitOf({ kind: fromGuest.exited, run: 1, payload })
    }
    expect(ending(0, 255)).toEqual({ how: 'exited', code: 255 })
    expect(ending(1, 64)).toEqual({ how: 'signaled', signal: 64 })
    expect(ending(2, 0)).toEqual({ how: 'killed' })
    for (const [how, value, extra] of [
      [0, 256, 0],
      [1, 0, 0],
      [1, 65, 0],
      [3, 0, 0],
      [0, 0, 1],
    ] as const)
      expect(() => ending(how, value, extra), `${how} ${value} ${extra}`).toThrow(GuestProtocolError)
    expect(() => u32Of({ kind: fromGuest.hello, run: 0, payload: Buffer.alloc(3) })).toThrow(GuestProtocolError)
  })
})

describe('frames to a guest', () => {
  const preparation = {
    argv: ['/usr/bin/python3', '-'],
    env: { NAME: 'wert' },
    home: '/home/baponi',
    tmpBytes: 1,
    homeBytes: 2,
    openFiles: 3,
    fileBytes: 4,
    pids: 5,
    memoryBytes: 10,
    cpus: 0.5,
    shownCpus: 6,
    codeBytes: 7,
    creditBytes: 8,
    pictureCreditBytes: 9,
  }

  it('describe a jail as the protocol specifies', () => {
    const records = readRecords(encodePrepare(9, preparation))
    expect(records).toEqual([
      [1, '/usr/bin/python3'],
      [1, '-'],
      [2, 'NAME=wert'],
      [3, '/home/baponi'],
      [5, 1],
      [6, 2],
      [7, 3],
      [8, 4],
      [9, 5],
      [10, 6],
      [18, 10],
      [19, 50_000],
      [11, 7],
      [13, 8],
      [17, 9],
    ])
    const files = { codeFile: 'main.sh', homeCodeFile: '.main.sh' }
    const withFile = readRecords(encodePrepare(9, { ...preparation, ...files, stdinBytes: 10 }))
    expect(withFile.filter((record) => !records.some(([tag]) => tag === record[0]))).toEqual([
      [4, 'main.sh'],
      [20, '.main.sh'],
      [12, 10],
    ])
  })

  it('contain no argument with NUL, and no more than a frame can carry', () => {
    expect(() => encodePrepare(1, { ...preparation, env: { A: 'x\0y' } })).toThrow(RangeError)
    expect(() => encodePrepare(1, { ...preparation, env: { A: 'x'.repeat(1_048_576) } })).toThrow(RangeError)
  })

  it('carry any number of bytes in pieces of at most a mebibyte', () => {
    const pieces = encodeBytes(toGuest.code, 3, new Uint8Array(2_500_000).fill(5))
    expect(pieces.map((piece) => piece.readUInt32LE(0))).toEqual([1_048_576, 1_048_576, 402_848])
    expect(encodeBytes(toGuest.code, 3, new Uint8Array())).toEqual([])
  })
})

function readRecords(frame: Buffer): [tag: number, value: string | number][] {
  const records: [number, string | number][] = []
  for (let at = 12; at < frame.length; ) {
    const tag = frame.readUInt8(at)
    const length = frame.readUInt32LE(at + 1)
    const value = frame.subarray(at + 5, at + 5 + length)
    at += 5 + length
    records.push([
      tag,
      tag <= 4 || tag === 20 ? value.toString() : length === 8 ? Number(value.readBigUInt64LE()) : value.readUInt32LE(),
    ])
  }
  return records
}
