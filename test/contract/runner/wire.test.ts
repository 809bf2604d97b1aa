import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseMessage } from '../../../src/runner/protocol/message-schemas.ts'
import { maxMessageBytes } from '../../../src/runner/protocol/messages.ts'
import { encodeMessage, MessageReader, WireError } from '../../../src/runner/protocol/wire.ts'

/** Cuts `bytes` at the given positions. */
function pieces(bytes: Buffer, cuts: readonly number[]): Buffer[] {
  const places = [0, ...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].sort((a, b) => a - b)
  return places.slice(1).map((end, index) => bytes.subarray(places[index], end))
}

describe('the framing between front and runner', () => {
  it('delivers every message unchanged, for every split of the stream', () => {
    const message = fc.record({ header: fc.dictionary(fc.string(), fc.jsonValue()), payload: fc.uint8Array() })
    fc.assert(
      fc.property(fc.array(message, { maxLength: 8 }), fc.array(fc.nat(), { maxLength: 12 }), (messages, cuts) => {
        const stream = Buffer.concat(messages.map(({ header, payload }) => encodeMessage(header, payload)))
        const reader = new MessageReader()
        const read = pieces(stream, cuts).flatMap((piece) => reader.push(piece))
        expect(read.map(({ payload }) => Buffer.from(payload).toString('hex'))).toEqual(
          messages.map(({ payload }) => Buffer.from(payload).toString('hex')),
        )
        expect(read.map(({ header }) => header)).toEqual(
          messages.map(({ header }) => JSON.parse(JSON.stringify(header))),
        )
      }),
    )
  })

  it('rejects a message above the size limit before storing any of it', () => {
    const prefix = Buffer.alloc(8)
    prefix.writeUInt32BE(maxMessageBytes + 1, 0)
    expect(() => new MessageReader().push(prefix)).toThrow(WireError)
  })

  it('reports invalid data only as its own error', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 64 })), (chunks) => {
        const reader = new MessageReader()
        try {
          for (const chunk of chunks) reader.push(Buffer.from(chunk))
        } catch (error) {
          expect(error).toBeInstanceOf(WireError)
        }
      }),
    )
  })

  it('accepts from a front only the messages that a front may send', () => {
    const refused: number[] = []
    const refuse = (request: number) => void refused.push(request)
    fc.assert(
      fc.property(fc.anything(), (header) => {
        expect(() => parseMessage(header, refuse)).toThrow(WireError)
      }),
    )
    expect(parseMessage({ type: 'list', request: 1 }, refuse)).toEqual({ type: 'list', request: 1 })
    expect(refused).toEqual([])
    // A value of a caller that was not checked costs its request, and not the connection with every run.
    for (const header of [
      { type: 'list', request: 1, more: true },
      { type: 'cancel', request: 2, runId: '../x y', cause: 'cancelled' },
      { type: 'sandbox_file_list', request: 3, sandboxId: 'sbx1', path: 'x'.repeat(100_000), limit: 1 },
    ])
      expect(parseMessage(header, refuse)).toBeUndefined()
    expect(refused).toEqual([1, 2, 3])
  })
})
