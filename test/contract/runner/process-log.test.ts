import { describe, expect, it } from 'vitest'
import { ProcessLog } from '../../../src/runner/sandboxes/process-log.ts'

const keepBytes = 1024 * 1024

/** Everything that a reader gets from the beginning. */
function readAll(log: ProcessLog) {
  const text = { stdout: '', stderr: '', channel: '' }
  let gapBytes = 0
  for (let event = log.after(0); event !== undefined; event = log.after(event.seq)) {
    if (event.kind === 'gap') gapBytes += event.bytes
    if (event.kind === 'output') text[event.stream] += Buffer.from(event.bytes).toString('latin1')
  }
  return { text, gapBytes }
}

describe('the kept output of a process', () => {
  it('is bounded in memory for a program that changes its stream with each byte', () => {
    const log = new ProcessLog(keepBytes)
    for (let n = 0; n < 200_000; n++) log.append(n % 2 === 0 ? 'stdout' : 'stderr', Buffer.from([97 + (n % 26)]))
    expect(log.memoryBytes).toBeLessThanOrEqual(2 * keepBytes)
    const { text, gapBytes } = readAll(log)
    expect(gapBytes + text.stdout.length + text.stderr.length).toBe(200_000)
    expect(text.stdout.length).toBeGreaterThan(1_000)
    expect(text.stderr.at(-1)).toBe(String.fromCharCode(97 + (199_999 % 26)))
  })

  it('is the newest in its order, in pieces of any size', () => {
    const log = new ProcessLog(keepBytes)
    let written = ''
    for (let n = 0; written.length < 3 * keepBytes; n++) {
      const piece = String.fromCharCode(97 + (n % 26)).repeat(1 + ((n * 53) % 9_000))
      written += piece
      log.append('stdout', Buffer.from(piece))
    }
    const { text, gapBytes } = readAll(log)
    expect(gapBytes + text.stdout.length).toBe(written.length)
    expect(written.endsWith(text.stdout)).toBe(true)
    expect(text.stdout.length).toBeGreaterThan(keepBytes * 0.9)
    expect(log.keptBytes).toBeLessThanOrEqual(keepBytes)
  })

  it('stays what a reader got when it grows', () => {
    const log = new ProcessLog(keepBytes)
    log.append('stdout', Buffer.from('first'))
    const event = log.after(0)
    for (let n = 0; n < 100; n++) log.append('stdout', Buffer.from('second'))
    expect(event).toMatchObject({ kind: 'output', seq: 5, bytes: Buffer.from('first') })
    expect(readAll(log).text.stdout).toBe(`first${'second'.repeat(100)}`)
  })
})
