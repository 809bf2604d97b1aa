/** Frames of every kind to the agent of a sandbox, in any order and with any content: guest/PROTOCOL.md. Records of SPAWN: guest-fuzz. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { builtGuest } from '../../support/built-guest.ts'
import { until } from '../../support/glovebox.ts'
import { frame, record, slotsMissing } from '../../support/guest-driver.ts'

const toAgent = [
  'spawn',
  'input',
  'inputEnd',
  'channel',
  'channelEnd',
  'credit',
  'channelCredit',
  'signal',
  'resize',
] as const
type Name = (typeof toAgent)[number]
const numberOf = Object.fromEntries(toAgent.map((name, index) => [name, index + 1])) as Record<Name, number>

/** Tags of the records of SPAWN. */
const tags = { arg: 1, cwd: 3, user: 4, terminal: 5, stdin: 6, channel: 7 }

const request = (...more: Buffer[]): Buffer =>
  Buffer.concat([record(tags.arg, 'cat'), record(tags.cwd, '/'), record(tags.user, 'nobody'), ...more])
const piped = request(record(tags.stdin, ''), record(tags.channel, ''))
const onTerminal = request(record(tags.terminal, Buffer.from([80, 0, 24, 0])))

/** What each kind carries when it is well-formed. */
const usual: Record<Name, Buffer> = {
  spawn: request(),
  input: Buffer.from('text\n'),
  inputEnd: Buffer.alloc(0),
  channel: Buffer.from('text\n'),
  channelEnd: Buffer.alloc(0),
  credit: Buffer.from([0, 16, 0, 0]),
  channelCredit: Buffer.from([0, 16, 0, 0]),
  signal: Buffer.from([15, 0, 0, 0, 0]),
  resize: Buffer.from([100, 0, 40, 0]),
}

const anyFrame = fc
  .record({
    name: fc.constantFrom(...toAgent),
    number: fc.oneof({ arbitrary: fc.integer({ min: 1, max: 2 }), weight: 8 }, fc.nat({ max: 5 }), fc.nat()),
    payload: fc.uint8Array({ maxLength: 300 }),
    isUsual: fc.oneof({ arbitrary: fc.constant(true), weight: 4 }, fc.boolean()),
    flipped: fc.option(fc.record({ at: fc.nat(), bit: fc.nat({ max: 7 }) }), { freq: 6 }),
  })
  .map(({ name, number, payload, isUsual, flipped }) => {
    // Any other SPAWN could start a program of the machine; guest-fuzz sends its reader arbitrary records.
    const isExact = name === 'spawn'
    const content = Buffer.from(isUsual || isExact ? usual[name] : payload)
    if (flipped && content.length > 0 && !isExact) content[flipped.at % content.length]! ^= 1 << flipped.bit
    return { name, bytes: frame(numberOf[name], number, content) }
  })

const begun = [frame(numberOf.spawn, 1, piped), frame(numberOf.spawn, 2, onTerminal)]

/** Starts an agent. */
function startAgent() {
  const agent = join(builtGuest('sanitized'), 'guest-agent')
  const child = spawn('unshare', ['--pid', '--fork', '--kill-child', '--mount-proc', agent], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { PATH: '/usr/bin:/bin', ASAN_OPTIONS: 'detect_leaks=0' },
  })
  let said = ''
  let received = Buffer.alloc(0)
  child.stderr.on('data', (text: Buffer) => {
    said += text.toString()
  })
  child.stdout.on('data', (bytes: Buffer) => {
    received = Buffer.concat([received, bytes])
  })
  child.stdin.on('error', () => undefined) // It may end first.
  const closed = once(child, 'close')
  return {
    send: (bytes: Buffer) => child.stdin.write(bytes),
    /** Waits until the agent has sent these bytes, or has ended. */
    answered: (bytes: Buffer) => until(() => child.exitCode !== null || received.includes(bytes), 'the agent answers'),
    /** Closes its input. @returns its exit code, and what sanitizers reported. */
    end: async () => {
      child.stdin.end()
      const [code] = await closed
      return { code: code as number, said, received }
    },
  }
}

/** The header of STARTED for a process. */
const started = (number: number) => frame(64, number, Buffer.alloc(4)).subarray(0, 12)

describe.skipIf(slotsMissing !== undefined)('the agent of a sandbox', () => {
  it('serves the processes of the frames below', async () => {
    const agent = startAgent()
    agent.send(Buffer.concat(begun))
    for (const number of [1, 2]) await agent.answered(started(number))
    for (const number of [1, 2])
      for (const name of ['credit', 'channelCredit', 'resize', 'input', 'channel'] as const)
        agent.send(frame(numberOf[name], number, usual[name]))
    // The terminal echoes what it receives, and can send it together with what the program prints.
    for (const text of ['text\n', 'text\r\n']) await agent.answered(Buffer.from(text))
    const { code, said, received } = await agent.end()
    expect([code, said]).toEqual([0, ''])
    expect(received.includes('text\r\n')).toBe(true)
  })

  it('ends its sandbox, or continues, whatever frames it receives', async () => {
    const sent = new Set<string>()
    const codes = new Set<number>()
    const sequences = fc.tuple(
      fc.boolean(),
      fc.array(anyFrame, { minLength: 2, maxLength: 10 }),
      fc.constantFrom(1, 7, 64, 4096),
    )
    await fc.assert(
      fc.asyncProperty(sequences, async ([isBegun, frames, pieceBytes]) => {
        for (const { name } of frames) sent.add(name)
        const agent = startAgent()
        if (isBegun) {
          agent.send(Buffer.concat(begun))
          for (const number of [1, 2]) await agent.answered(started(number))
        }
        const stream = Buffer.concat(frames.map(({ bytes }) => bytes))
        for (let at = 0; at < stream.length; at += pieceBytes) agent.send(stream.subarray(at, at + pieceBytes))
        const { code, said } = await agent.end()
        codes.add(code)
        expect(said).toBe('')
        // 0: nothing was wrong until the end of its input.
        expect([0, 70]).toContain(code)
      }),
      { numRuns: 40, endOnFailure: true },
    )
    expect([...sent].toSorted()).toEqual([...toAgent].toSorted())
    expect([...codes].toSorted()).toEqual([0, 70])
  })
})
