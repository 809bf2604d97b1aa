/** Promise 42: whatever the agent of a sandbox sends, the runner believes only what can come now. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { agentDecoder, agentWindowBytes, fromAgent } from '../../src/engine/sandboxes/agent-channel.ts'
import { AgentProcess } from '../../src/engine/sandboxes/agent-process.ts'
import { encodeFrame, GuestProtocolError } from '../../src/engine/slots/guest-channel.ts'

const creditBytes = 64

/** Frames of a process as an agent sends them, and others. */
const honest = [
  encodeFrame(fromAgent.started, 1, Buffer.from([7, 0, 0, 0])),
  encodeFrame(fromAgent.stdout, 1, Buffer.from('out')),
  encodeFrame(fromAgent.stderr, 1, Buffer.from('err')),
  encodeFrame(fromAgent.channel, 1, Buffer.from('channel')),
  encodeFrame(fromAgent.inputRoom, 1, Buffer.from([1, 0, 0, 0])),
  encodeFrame(fromAgent.ended, 1, Buffer.from([0, 3, 0, 0, 0])),
]
const payload = fc.uint8Array({ maxLength: 80 }).map((bytes) => Buffer.from(bytes))
const anyFrame = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...honest) },
  fc
    .tuple(fc.constantFrom(...Object.values(fromAgent), 0, 1, 72, 255), payload)
    .map(([kind, bytes]) => encodeFrame(kind, 1, bytes)),
  payload, // Garbage between frames.
)

/** What the runner takes from a stream of frames, cut anywhere, before it refuses the rest. */
function taken(stream: Buffer, cuts: readonly number[]) {
  const events: string[] = []
  let outputBytes = 0
  const process = new AgentProcess(1, () => undefined, {
    started: () => events.push('started'),
    notStarted: (reason) => {
      expect(Buffer.byteLength(reason)).toBeLessThanOrEqual(3 * 500)
      events.push('notStarted')
    },
    output: (_, bytes) => {
      outputBytes += bytes.length
      events.push('output')
    },
    ended: () => events.push('ended'),
  })
  process.grant('output', creditBytes)
  process.grant('channel', creditBytes)
  void process.write('stdin', Buffer.alloc(agentWindowBytes))
  const decoder = agentDecoder()
  try {
    for (let at = 0, turn = 0; at < stream.length; turn++) {
      const length = cuts[turn % cuts.length]!
      decoder.push(stream.subarray(at, at + length), (frame) => process.take(frame))
      at += length
    }
  } catch (error) {
    expect(error).toBeInstanceOf(GuestProtocolError)
  }
  return { events, outputBytes }
}

describe('the frames of an agent', () => {
  it('are understood when they are well-formed, wherever they are cut', () => {
    for (const cut of [1, 5, 1_000]) {
      const { events } = taken(Buffer.concat(honest), [cut])
      expect(events).toEqual(['started', 'output', 'output', 'output', 'ended'])
    }
  })

  it('never cause more than one life of a process, output beyond its credit, or another error', () => {
    const seen = new Set<string>()
    fc.assert(
      fc.property(
        fc.array(anyFrame, { maxLength: 12 }),
        fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 5 }),
        (frames, cuts) => {
          const { events, outputBytes } = taken(Buffer.concat(frames), cuts)
          for (const event of events) seen.add(event)
          expect(events.join(' ')).toMatch(/^(started( output)*( ended)?|notStarted)?$/)
          expect(outputBytes).toBeLessThanOrEqual(2 * creditBytes)
        },
      ),
      { numRuns: 3_000 },
    )
    expect(seen.size).toBe(4) // The generator reaches every kind of event.
  })
})
