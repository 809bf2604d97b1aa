import { describe, expect, it } from 'vitest'
import type { UpstreamProcess } from '../../../src/core/upstreams/programs/program-process.ts'
import { UpstreamProblem } from '../../../src/gateway/failures.ts'
import { LineReader, LineTooLong } from '../../../src/gateway/stdio/line-reader.ts'
import { ProcessMessages } from '../../../src/gateway/stdio/messages.ts'

const read = (pieces: readonly Uint8Array[], maxBytes = 1_000) => {
  const lines = new LineReader(maxBytes)
  return pieces.flatMap((piece) => lines.add(piece))
}

describe('lines on standard output', () => {
  const text = '{"a":1}\r\n\n\r\n{"ä":"\u2028€"}\n  {"b":\r2}\n'
  const expected = ['{"a":1}', '{"ä":"\u2028€"}', '  {"b":\r2}']
  const bytes = Buffer.from(`${text}{"unfinished`)

  it('end with LF or CRLF wherever their pieces end', () => {
    for (let size = 1; size <= bytes.length; size++) {
      const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_, n) =>
        bytes.subarray(n * size, (n + 1) * size),
      )
      expect([size, read(pieces)]).toEqual([size, expected])
    }
  })

  it('are refused when they are longer than the limit, with or without an end', () => {
    expect(read([Buffer.from(`${'x'.repeat(10)}\n`)], 10)).toEqual(['x'.repeat(10)])
    expect(() => read([Buffer.from(`${'x'.repeat(11)}\n`)], 10)).toThrow(LineTooLong)
    expect(() => read([Buffer.from('x'.repeat(6)), Buffer.from('x'.repeat(6))], 10)).toThrow(LineTooLong)
  })
})

/** A process that writes these pieces and then has ended. */
function ended(pieces: readonly string[], write: UpstreamProcess['write'] = async () => {}) {
  let skippedLines = 0
  return {
    get skippedLines() {
      return skippedLines
    },
    countSkippedLine: () => {
      skippedLines += 1
    },
    output: (async function* () {
      for (const piece of pieces) yield Buffer.from(piece)
    })(),
    ending: 'exited with code 1',
    write,
    kill: async () => {},
  }
}

describe('messages of a process', () => {
  it('are read between other lines, which are counted', async () => {
    const pieces = ['Ready!\n[]\n{"id":1}\nnull\n{"id":1,"result":{}}\n{"method":', '"x"}\n{"id":2,"error":{}}\n{"a\n']
    const process = ended(pieces)
    const messages = new ProcessMessages(process)
    const received: unknown[] = []
    const problem = await messages.read((message) => received.push(message))
    expect(received).toEqual([{ id: 1, result: {} }, { method: 'x' }, { id: 2, error: {} }])
    expect(process.skippedLines).toBe(5)
    expect(problem.message).toBe('its program exited with code 1')
  })

  it('are written one after the other, and refused when the program does not read', async () => {
    const written: string[] = []
    let release = () => {}
    const first = new Promise<void>((resolve) => {
      release = resolve
    })
    const messages = new ProcessMessages(
      ended([], async (bytes) => {
        if (written.length === 0) await first
        written.push(Buffer.from(bytes).toString())
      }),
    )
    const sent = [messages.send({ n: 1 }), messages.send({ n: 2 })]
    const large = messages.send({ text: 'x'.repeat(15 * 1024 * 1024) })
    await expect(messages.send({ text: 'x'.repeat(2 * 1024 * 1024) })).rejects.toThrow(UpstreamProblem)
    release()
    await Promise.all([...sent, large])
    expect(written.slice(0, 2)).toEqual(['{"n":1}\n', '{"n":2}\n'])
  })
})
