/**
 * Promise 51: messages of code in a sandbox, and of servers, are read by a process that serves everyone. They do not keep
 * it busy, or fill its memory, however they are made.
 */
import { tmpdir } from 'node:os'
import { setImmediate as turn } from 'node:timers/promises'
import { afterAll, describe, expect, it } from 'vitest'
import { parseForeignJson } from '../../src/base/json.ts'
import { openKernels } from '../../src/core/sandboxes/kernels/kernels.ts'
import { callIn, kernelsInSources } from '../support/kernel-calls.ts'
import { PlainProcesses } from '../support/plain-processes.ts'

const processes = new PlainProcesses({ cwd: tmpdir(), env: { PATH: '/usr/bin:/bin' } })
const call = callIn(openKernels(processes, { dir: kernelsInSources, graceMs: 1_000 }), 'sbx')
afterAll(() => processes[Symbol.asyncDispose]())

const mebibyte = 1024 * 1024
const shapes: [string, string][] = [
  ['empty arrays', `{"data":[${'[],'.repeat(4 * mebibyte)}1]}`],
  ['keys', `{"data":{${'"k":1,'.repeat(2 * mebibyte)}"k":1}}`],
  ['nested arrays', `{"data":${'['.repeat(6 * mebibyte)}${']'.repeat(6 * mebibyte)}}`],
]

/** @returns the longest time that the event loop was held meanwhile, in milliseconds. */
async function longestHold(work: Promise<unknown>): Promise<number> {
  let [longest, isOver] = [0, false]
  const over = () => {
    isOver = true
  }
  work.then(over, over)
  for (let before = performance.now(); !isOver; ) {
    await turn()
    const now = performance.now()
    longest = Math.max(longest, now - before)
    before = now
  }
  return longest
}

const millisecondsOf = (work: () => unknown): number => {
  const startMs = performance.now()
  try {
    work()
  } catch {
    // Also a text that is refused at its end was read.
  }
  return performance.now() - startMs
}

/** Sends frames of its own on the channel of its kernel, with the number of its call. */
const forging = (pieces: string) => `
import inspect, os
frame, nonce = inspect.currentframe(), ''
while frame:
    for v in list(frame.f_locals.values()):
        if isinstance(v, str) and len(v) == 24 and set(v) <= set('0123456789abcdef'): nonce = v
    frame = frame.f_back
links = {n: os.readlink(f'/proc/self/fd/{n}') for n in range(200) if os.path.exists(f'/proc/self/fd/{n}')}
streams = [links[n] for n in (0, 1, 2) if n in links]
channel = next(n for n, link in links.items() if n > 2 and link not in streams and link.startswith(('socket:', 'pipe:')))
def send(data):
    data = memoryview(data)
    while data: data = data[os.write(channel, data):]
print(len(nonce))
${pieces}`

describe('JSON of a program that code can pretend to be', () => {
  it.each(shapes)('is refused before anything is made of it when it holds millions of %s', (_what, json) => {
    const unprotectedMs = millisecondsOf(() => JSON.parse(json))
    expect(() => parseForeignJson(json)).toThrow(/more than|deeper than/)
    expect(millisecondsOf(() => parseForeignJson(json))).toBeLessThan(unprotectedMs / 2)
  })

  it('is read to its end where it is one long text', () => {
    for (const piece of ['a', '\\"', '\\\\', '\\n"'.slice(0, 2), '\\\\\\"', 'a\\\\'])
      for (const length of [1, 255, 256, 257, 1_000, 70_000]) {
        const text = `{"a":"${piece.repeat(length)}","b":[1]}`
        expect(parseForeignJson(text)).toEqual(JSON.parse(text))
      }
  })
})

describe('code in a stateful context', () => {
  it('cannot keep the event loop busy with values that it displays', async () => {
    const json = shapes[0]![1]
    const unprotectedMs = millisecondsOf(() => JSON.parse(json))
    const frames = `
data = b'{"data":[' + b'[],' * (4 * 1024 * 1024) + b'1]}'
for _ in range(2): send(b'display %s %d\\n' % (nonce.encode(), len(data)) + data)`
    const work = call('python', forging(frames), { timeoutMs: 60_000 })
    const longestMs = await longestHold(work)
    expect(await work).toMatchObject({ stdout: '24\n', displays: [], ended: { ending: { kind: 'completed' } } })
    expect(longestMs).toBeLessThan(unprotectedMs / 2)
  }, 90_000)

  it('cannot do it with frames of a few bytes either', async () => {
    let turns = 0
    const count = async (work: Promise<unknown>) => {
      let isOver = false
      work.finally(() => {
        isOver = true
      })
      for (; !isOver; turns++) await turn()
    }
    const work = call('python', forging(`send(b'display 0 0\\n' * 40_000)`), { timeoutMs: 60_000 })
    await count(work)
    expect((await work).ended.ending.kind).toBe('completed')
    // Others had a turn after every few hundred of them.
    expect(turns).toBeGreaterThan(40_000 / 256)
  }, 90_000)
})
