import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { RunEvent, RunResult, Stream } from '../../../src/base/run.ts'
import { unmeasured } from '../../../src/base/run.ts'
import { OutputLog } from '../../../src/runner/runs/output-log.ts'

const limits = {
  memoryBytes: 1,
  cpus: 1,
  pids: 1,
  openFiles: 1,
  fileBytes: 1,
  tmpBytes: 1,
  homeBytes: 1,
  outputSoftBytes: 1,
  outputHardBytes: 1,
  timeoutMs: 1,
}
const result: RunResult = unmeasured(limits, { kind: 'exited', code: 0 })

/** Reads like a client that disconnects and resumes after every few events. */
function readAll(outputLog: OutputLog, from = 0): RunEvent[] {
  const events: RunEvent[] = []
  for (let event = outputLog.after(from); event; event = outputLog.after(event.seq)) events.push(event)
  return events
}

function textOf(events: readonly RunEvent[], stream: Stream): string {
  return events
    .map((event) => {
      if (event.kind === 'output' && event.stream === stream) return Buffer.from(event.bytes).toString('latin1')
      return event.kind === 'gap' && event.stream === stream ? `<${event.bytes}>` : ''
    })
    .join('')
}

const writes = fc.array(
  fc.record({
    stream: fc.constantFrom<Stream>('stdout', 'stderr'),
    text: fc.string({ unit: fc.constantFrom('a', 'b', 'c', '\n'), maxLength: 60 }),
  }),
  { maxLength: 80 },
)

describe('the output log of a run', () => {
  it('gives its ending to a reader with any number, and what follows to one beyond its end', () => {
    const outputLog = new OutputLog(1_000)
    outputLog.append('stdout', Buffer.from('one'))
    const ahead = outputLog.startAfter(1_000_000)
    outputLog.append('stdout', Buffer.from('two'))
    expect(textOf(readAll(outputLog, ahead), 'stdout')).toBe('two')
    outputLog.finish(result)
    for (const seq of [7, 8, Number.MAX_SAFE_INTEGER])
      expect(readAll(outputLog, outputLog.startAfter(seq))).toEqual([{ kind: 'ended', seq: 7, result }])
  })

  it('keeps each stream complete and in order up to the soft limit', () => {
    fc.assert(
      fc.property(writes, (list) => {
        const outputLog = new OutputLog(60 * 80)
        for (const { stream, text } of list) outputLog.append(stream, Buffer.from(text))
        outputLog.finish(result)
        const events = readAll(outputLog)
        for (const stream of ['stdout', 'stderr'] as const) {
          const written = list.filter((write) => write.stream === stream).map((write) => write.text)
          expect(textOf(events, stream)).toBe(written.join(''))
        }
      }),
    )
  })

  it('keeps head and tail above the soft limit, and states how much is missing', () => {
    fc.assert(
      fc.property(writes, fc.integer({ min: 8, max: 200 }), (list, softBytes) => {
        const outputLog = new OutputLog(softBytes)
        for (const { stream, text } of list) outputLog.append(stream, Buffer.from(text))
        outputLog.finish(result)
        const events = readAll(outputLog)
        for (const stream of ['stdout', 'stderr'] as const) {
          const written = list
            .filter((write) => write.stream === stream)
            .map((write) => write.text)
            .join('')
          const tailBytes = Math.floor(softBytes / 4)
          const missing = written.length - softBytes
          const expected =
            missing > 0
              ? `${written.slice(0, softBytes - tailBytes)}<${missing}>${written.slice(written.length - tailBytes)}`
              : written
          expect(textOf(events, stream)).toBe(expected)
        }
      }),
    )
  })

  it('resumes exactly where a reader left off, after any event', () => {
    fc.assert(
      fc.property(writes, fc.nat(4000), (list, seq) => {
        const outputLog = new OutputLog(500)
        outputLog.running()
        for (const { stream, text } of list) outputLog.append(stream, Buffer.from(text))
        outputLog.finish(result)
        const all = readAll(outputLog)
        const cut = all.findIndex((event) => event.seq > seq)
        const rest = readAll(outputLog, seq)
        expect(rest.at(-1)?.kind).toBe(cut < 0 ? undefined : 'ended')
        const bytesAfter = (events: readonly RunEvent[], after: number) =>
          events.reduce((sum, event) => {
            if (event.kind !== 'output') return sum
            return sum + Math.min(event.bytes.length, Math.max(event.seq - after, 0))
          }, 0)
        expect(bytesAfter(rest, seq)).toBe(bytesAfter(all, seq))
      }),
    )
  })

  it('shows the head while the run executes', () => {
    const outputLog = new OutputLog(1000)
    outputLog.running()
    outputLog.append('stdout', Buffer.from('one '))
    expect(textOf(readAll(outputLog), 'stdout')).toBe('one ')
    outputLog.append('stdout', Buffer.from('two'))
    expect(textOf(readAll(outputLog, 5), 'stdout')).toBe('two')
  })

  it('stores no more than the soft limit per stream for endless output', () => {
    const outputLog = new OutputLog(64 * 1024)
    const chunk = Buffer.alloc(32 * 1024, 'x')
    for (let count = 0; count < 4_000; count++) outputLog.append(count % 2 === 0 ? 'stdout' : 'stderr', chunk)
    expect(outputLog.retainedBytes).toBeLessThanOrEqual(2 * 64 * 1024 + 1024)
  })

  it('stays bounded when a program alternates streams with every byte', () => {
    const outputLog = new OutputLog(1024 * 1024)
    for (let count = 0; count < 300_000; count++)
      outputLog.append(count % 2 === 0 ? 'stdout' : 'stderr', Buffer.from('x'))
    outputLog.finish(result)
    const events = readAll(outputLog)
    expect(events.length).toBeLessThan(66_000)
    // Their order uses memory, too, and counts towards the bound.
    expect(outputLog.retainedBytes).toBeGreaterThan(64 * events.length)
    const shown = events.reduce((sum, event) => {
      return sum + (event.kind === 'output' ? event.bytes.length : event.kind === 'gap' ? event.bytes : 0)
    }, 0)
    expect(shown).toBe(300_000)
  })

  it('notifies followers of each change until they unsubscribe', () => {
    const outputLog = new OutputLog(1000)
    let calls = 0
    const leave = outputLog.onChange(() => {
      calls += 1
    })
    outputLog.append('stdout', Buffer.from('x'))
    leave()
    outputLog.append('stdout', Buffer.from('y'))
    expect(calls).toBe(1)
  })
})
