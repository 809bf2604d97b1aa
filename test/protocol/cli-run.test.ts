import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { type RunArguments, run } from '../../src/cli/run.ts'
import { type Outcome, withCommandIo } from '../support/command-io.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'

let front: Front
let directory: string
beforeAll(async () => {
  front = await openFront(threadsProfile)
  directory = await mkdtemp(join(tmpdir(), 'glovebox-run-'))
})
afterAll(async () => {
  await front.close()
  await rm(directory, { recursive: true })
})

/** Runs the command with real streams instead of those of a process. */
const glovebox = (
  words: Omit<RunArguments, 'env'> & { env?: string[] },
  more: Parameters<typeof withCommandIo>[1] = {},
): Promise<Outcome> =>
  withCommandIo((io) => run({ env: [], ...words }, io), { env: { GLOVEBOX_URL: front.url }, ...more })

async function file(name: string, content: string | Uint8Array): Promise<string> {
  const path = join(directory, name)
  await writeFile(path, content)
  return path
}

describe('glovebox run', () => {
  it('prints both streams of the program separately, and exits with its code', async () => {
    const path = await file('a.sh', 'echo out; echo err >&2; exit 5')
    const { code, stdout, stderr } = await glovebox({ file: path })
    expect([code, stdout.toString(), stderr]).toEqual([5, 'out\n', 'err\n'])
  })

  it('refuses a file of another language, unless its language is named', async () => {
    const path = await file('a.rb', 'print(6 * 7)')
    const { code, stderr } = await glovebox({ file: path })
    expect([code, stderr]).toEqual([
      64,
      expect.stringMatching(/the language of .*a\.rb is unknown; use --language \(python/),
    ])
    expect((await glovebox({ file: path, language: 'python' })).stdout.toString()).toBe('42\n')
  })

  it('detects the language by file name or first line', async () => {
    const cases: [string, string][] = [
      ['a.py', 'import sys; print("python")'],
      ['a.mjs', 'console.log("node")'],
      ['a.ts', 'const x: string = "typescript"; console.log(x)'],
      ['plain', '#!/bin/sh\necho bash'],
      ['other', '#!/usr/bin/env python3\nprint("python")'],
    ]
    for (const [name, content] of cases) {
      expect((await glovebox({ file: await file(name, content) })).code).toBe(0)
    }
    const languages = [...front.runner.specs.values()].slice(-5).map(({ language }) => language)
    expect(languages).toEqual(['python', 'node', 'typescript', 'bash', 'python'])
  })

  it('reads the program from standard input, its input from a file, and accepts variables and a timeout', async () => {
    const input = await file('input', 'from the file')
    const words = { file: '-', language: 'bash', stdin: input, env: ['A=x=y', 'B='], timeout: '9' }
    const { code, stdout } = await glovebox(words, { stdin: 'cat; echo ":$A:$B:"' })
    expect([code, stdout.toString()]).toEqual([0, 'from the file:x=y::\n'])
    expect([...front.runner.specs.values()].at(-1)?.limits.timeoutMs).toBe(9_000)
  })

  it('passes bytes through unchanged', async () => {
    const { stdout } = await glovebox({ file: await file('b.sh', "printf '\\xff\\x00\\xfe\\n'") })
    expect(stdout).toEqual(Buffer.from([0xff, 0x00, 0xfe, 0x0a]))
  })

  it('prints while the program runs', async () => {
    const stop = new AbortController()
    const path = await file('c.sh', 'echo early; sleep 60')
    const { code, stderr } = await glovebox({ file: path }, { stop: stop.signal, onStdout: () => stop.abort('SIGINT') })
    expect([code, stderr]).toEqual([130, 'glovebox run: cancelled\n'])
    await vi.waitFor(async () => expect(await front.store.runs.unfinished()).toEqual([]))
  })

  it('keeps files in a thread', async () => {
    const path = await file('t.sh', 'echo x >>kept; wc -l <kept')
    await glovebox({ file: path, thread: 'kept' })
    expect((await glovebox({ file: path, thread: 'kept' })).stdout.toString()).toBe('2\n')
  })

  it('passes its own standard input on, unless that is a terminal or not wanted', async () => {
    const path = await file('i.sh', 'cat; echo end')
    const printed = async (words: object, more: object) =>
      (await glovebox({ file: path, ...words }, more)).stdout.toString()
    expect(await printed({}, { stdin: 'given\n' })).toBe('given\nend\n')
    expect(await printed({ stdin: '-' }, { stdin: 'given\n' })).toBe('given\nend\n')
    expect(await printed({ stdin: false }, { stdin: 'given\n' })).toBe('end\n')
    expect(await printed({}, { stdin: 'given\n', terminals: ['stdin'] })).toBe('end\n')
    const both = await glovebox({ file: '-', stdin: '-' }, { stdin: 'echo' })
    expect([both.code, both.stderr]).toEqual([64, expect.stringContaining('standard input is the program itself')])
  })

  it('does not wait for a pipe that stays open, and says so', async () => {
    const path = await file('j.sh', 'cat; echo end')
    const open = new PassThrough()
    open.write('not for it')
    const { stdout, stderr } = await glovebox({ file: path }, { stdin: open })
    expect([stdout.toString(), stderr]).toEqual(['end\n', expect.stringContaining('use --stdin - to wait for it')])
    const late = new PassThrough()
    setTimeout(() => late.end('late\n'), 1_000)
    expect((await glovebox({ file: path, stdin: '-' }, { stdin: late })).stdout.toString()).toBe('late\nend\n')
  })

  it('ends when it is interrupted while it waits for standard input', async () => {
    const stop = new AbortController()
    const stdin = new PassThrough()
    setImmediate(() => stop.abort('SIGTERM'))
    expect((await glovebox({ file: '-' }, { stdin, stop: stop.signal })).code).toBe(143)
  })

  it('shows control characters as text on a terminal', async () => {
    const path = await file('k.sh', String.raw`printf '\033]0;title\007\033[31mred\033[0m\n'; printf '\033[2J' >&2`)
    const { stdout, stderr } = await glovebox({ file: path }, { terminals: ['stdout', 'stderr'] })
    expect(stdout.toString()).toBe('\\x1b]0;title\\x07\x1b[31mred\x1b[0m\n')
    expect(stderr).toBe('\\x1b[2J')
  })

  it('prints the execution as JSON', async () => {
    const path = await file('l.sh', 'echo out; echo err >&2; exit 3')
    const { code, stdout, stderr } = await glovebox({ file: path, json: true })
    expect([code, stderr]).toEqual([3, ''])
    expect(JSON.parse(stdout.toString())).toMatchObject({
      ...{ status: 'failed', exit_code: 3, stdout: 'out\n', stderr: 'err\n' },
      ...{ ending: { kind: 'exited', code: 3 }, figures: [] },
    })
  })

  it('exits with 124 after a timeout and 128 + n after a signal, and says so', async () => {
    const slow = await glovebox({ file: await file('d.sh', 'sleep 60'), timeout: '1' })
    expect([slow.code, slow.stderr]).toEqual([124, 'glovebox run: killed after 1 s (timed out)\n'])
    const killed = await glovebox({ file: await file('e.sh', 'kill -TERM $$') })
    expect([killed.code, killed.stderr]).toEqual([143, 'glovebox run: ended by signal SIGTERM\n'])
  })

  it('exits with 125 and the reason after a failure of the product', async () => {
    const path = await file('f.sh', 'true')
    const failures: [Outcome, string][] = [
      [await glovebox({ file: join(directory, 'missing.py') }), 'cannot read'],
      [await glovebox({ file: await file('g.py', Buffer.from([0xff])) }), 'is not UTF-8 text'],
      [await glovebox({ file: path, timeout: '9999' }), 'timeout must be at most 3600'],
      [await glovebox({ file: path, env: ['PATH=/'] }), 'is reserved'],
      [await glovebox({ file: path, url: 'http://127.0.0.1:1' }), 'cannot connect to a server at http://127.0.0.1:1'],
      [await glovebox({ file: path, url: 'not an address' }), 'cannot connect to a server'],
    ]
    for (const [{ code, stderr }, reason] of failures) {
      expect(stderr).toContain(reason)
      expect(code).toBe(125)
    }
  })

  it('exits with 64 for invalid arguments', async () => {
    const path = await file('h.sh', 'true')
    expect((await glovebox({ file: path, timeout: 'soon' })).code).toBe(64)
    expect((await glovebox({ file: path, env: ['novalue'] })).code).toBe(64)
  })
})
