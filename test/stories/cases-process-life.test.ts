/** Cases from public bug reports about the lifetime of processes, with our own inputs. */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { callTool, execute, follow, post } from '../support/calls.ts'
import { program, until } from '../support/glovebox.ts'
import { slotsOf } from '../support/machine.ts'
import { openStory } from '../support/story.ts'

const story = openStory(['--no-prewarm-jails', '--runs-max', '8'])

const nothingRuns = () => slotsOf(story.place).every(({ runPids }) => runPids.length === 0)
const cancel = (runId: string) => post(`${story.url}/v1/executions/${runId}/cancel`, {})

/** Programs that resist termination, by method. */
const stubborn: readonly [what: string, language: string, code: string][] = [
  ['children', 'bash', 'for i in 1 2 3; do sleep 600 & done; echo up; wait'],
  [
    'sessions of their own',
    'bash',
    'for i in 1 2; do setsid -f sleep 600; done; setsid sleep 600 & echo up; sleep 600',
  ],
  [
    'deaf ears',
    'bash',
    "trap '' TERM INT HUP QUIT; (trap '' TERM; setsid sleep 600) & echo up; while :; do sleep 600; done",
  ],
  [
    'a double fork in a session of its own',
    'python',
    'import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        for fd in (0, 1, 2): os.close(fd)\n        time.sleep(600)\n    os._exit(0)\nprint("up", flush=True)\ntime.sleep(600)',
  ],
  [
    'processes that are stopped',
    'bash',
    'sleep 600 & kill -STOP $!; (kill -STOP $BASHPID; sleep 600) & echo up; sleep 600',
  ],
  ['its own stop', 'bash', 'sleep 600 & echo up; kill -STOP $$'],
  [
    'children that start each other again',
    'node',
    "const { spawn } = require('node:child_process'); const go = () => spawn('sleep', ['0.05'], { detached: true }).on('exit', go); for (let i = 0; i < 8; i++) go(); console.log('up')",
  ],
  ['no output at all', 'bash', 'exec >&- 2>&-; sleep 600'],
]

describe('a run that is terminated', () => {
  it.each(stubborn)('by its timeout leaves no process behind: %s', async (_what, language, code) => {
    const run = await execute(story.url, language, code, { timeout: 1 })
    expect(run.ending).toEqual({ kind: 'timed_out', limit_ms: 1000 })
    expect(nothingRuns()).toBe(true)
  })

  it.each(stubborn)('by its caller leaves no process behind: %s', async (_what, language, code) => {
    const run = await follow(story.url, language, code, { timeout: 60 })
    if (code.includes('up')) await run.said('up')
    await cancel(run.runId)
    expect(await run.result).toMatchObject({ ending: { kind: 'cancelled' } })
    expect(nothingRuns()).toBe(true)
  })

  it('does not delay the next run', async () => {
    for (let count = 0; count < 3; count++) {
      await execute(story.url, 'bash', 'trap "" TERM; sleep 600', { timeout: 1 })
      expect(await execute(story.url, 'bash', 'echo next')).toMatchObject({ stdout: 'next\n', exit_code: 0 })
    }
  })
})

describe('a server process left in the background', () => {
  it.each([
    ['bash', '(while :; do echo noise; done) & sleep 0.3; echo ok >&2'],
    [
      'bash',
      'python3 -m http.server 8000 --bind 127.0.0.1 & sleep 0.5; curl -s -o /dev/null http://127.0.0.1:8000/; echo ok >&2',
    ],
    ['bash', 'nohup setsid sh -c "while :; do echo more; sleep 0.01; done" & sleep 0.3; echo ok >&2'],
    [
      'python',
      'import subprocess, sys\nsubprocess.Popen(["yes"], start_new_session=True)\nprint("ok", file=sys.stderr)',
    ],
    [
      'node',
      "require('node:child_process').spawn('yes', { stdio: 'inherit', detached: true }).unref(); console.error('ok')",
    ],
  ])('does not hold up the answer of %s: %s', async (language, code) => {
    const run = await execute(story.url, language, code, { timeout: 30 })
    expect(run.ending).toEqual({ kind: 'exited', code: 0 })
    expect(run.stderr).toContain('ok\n')
    await until(nothingRuns, 'nothing of it is left')
  })
})

describe('a signal that a program raises', () => {
  it.each([
    ['TERM', 143],
    ['KILL', 137],
    ['INT', 130],
    ['USR1', 138],
  ])('SIG%s is what it ended by, long before its timeout', async (signal, code) => {
    const run = await execute(story.url, 'bash', `echo before; kill -${signal} $$; sleep 600`, { timeout: 30 })
    expect(run).toMatchObject({ ending: { kind: 'signaled', signal }, stdout: 'before\n' })
    expect(run.exit_code).toBe(code)
    const answer = await callTool(story.url, { language: 'bash', code: `kill -${signal} $$`, timeout: 30 })
    expect(answer.body.result?.content[0]?.text).toContain(`SIG${signal}`)
    expect(answer.body.result?.content[0]?.text).not.toMatch(/timed? ?out/i)
  })

  it('in a child process becomes the exit code that a shell reports', async () => {
    const run = await execute(story.url, 'bash', '(kill -TERM $BASHPID); echo $?; (kill -KILL $BASHPID); echo $?')
    expect(run).toMatchObject({ stdout: '143\n137\n', exit_code: 0 })
  })
})

describe('a command that does not exist', () => {
  it('is reported by name, with exit code 127', async () => {
    const run = await execute(story.url, 'bash', 'no-such-command --help')
    expect(run).toMatchObject({
      ending: { kind: 'exited', code: 127 },
      stderr: expect.stringContaining('no-such-command'),
    })
    const denied = await execute(story.url, 'bash', 'echo hi > file; ./file')
    expect(denied).toMatchObject({ exit_code: 126, stderr: expect.stringContaining('Permission denied') })
  })
})

describe('standard input', () => {
  it.each([
    ['bash', 'cat /dev/stdin; cat -; read -r line; echo "read $?"', 'read 1\n'],
    [
      'python',
      'try:\n    input()\nexcept EOFError:\n    print("EOF")\nprint(repr(open("/dev/stdin").read()))',
      "EOF\n''\n",
    ],
    ['node', 'console.log(JSON.stringify(require("node:fs").readFileSync("/dev/stdin", "utf8")))', '""\n'],
    ['node', 'process.stdin.on("data", () => {}).on("end", () => console.log("end"))', 'end\n'],
    ['python', 'import subprocess; print(subprocess.run(["cat"], capture_output=True).stdout)', "b''\n"],
    ['bash', 'python3 -c "import sys; print(len(sys.stdin.read()))"; sort | wc -l', '0\n0\n'],
  ])('is at its end at once where none is given: %s %s', async (language, code, stdout) => {
    expect(await execute(story.url, language, code, { timeout: 20 })).toMatchObject({ stdout, exit_code: 0 })
  })

  it('arrives complete at two megabytes in every language', async () => {
    const stdin = Array.from({ length: 2 ** 17 }, (_, at) => `${at.toString(36).padStart(15, '.')}\n`).join('')
    expect(Buffer.byteLength(stdin)).toBe(2 * 1024 * 1024)
    const sum = createHash('sha256').update(stdin).digest('hex')
    for (const [language, code] of [
      ['bash', 'sleep 0.3; sha256sum | cut -c1-64'],
      ['python', 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'],
      [
        'node',
        "process.stdin.pipe(require('node:crypto').createHash('sha256')).on('finish', function () { console.log(this.digest('hex')) })",
      ],
    ] as const) {
      expect((await execute(story.url, language, code, { stdin })).stdout).toBe(`${sum}\n`)
    }
  })

  it('left unread by a program that fails does not hide its error, also in parallel runs', async () => {
    const stdin = 'unread\n'.repeat(150_000)
    const runs = await Promise.all(
      Array.from({ length: 24 }, (_, at) =>
        execute(story.url, 'bash', `echo "mine ${at}" >&2; exit ${at + 1}`, { stdin, timeout: 60 }),
      ),
    )
    expect(runs.map((run) => [run.exit_code, run.stderr])).toEqual(runs.map((_, at) => [at + 1, `mine ${at}\n`]))
  })

  it('can be redirected from a heredoc inside the program', async () => {
    const code =
      'cat <<EOF\n$((6 * 7)) and "quotes"\nEOF\npython3 - <<\'EOF\'\nprint("nested", 1 + 1)\nEOF\ncat <<-EOF | tr a-z A-Z\n\ttabbed\nEOF'
    for (const more of [{}, { stdin: 'not this' }]) {
      expect((await execute(story.url, 'bash', code, more)).stdout).toBe('42 and "quotes"\nnested 2\nTABBED\n')
    }
  })
})

describe('glovebox run', () => {
  /** The standard input of this process stays open while the command runs. */
  async function run(words: string[], code: string): Promise<{ code: number | null; stdout: string; stderr: string }> {
    const file = join(story.place.directory, 'script.sh')
    writeFileSync(file, code)
    const child = spawn(program, ['run', file, '--url', story.url, ...words], { env: { PATH: process.env.PATH ?? '' } })
    child.stdin.write('this is not for it\n')
    const [stdout, stderr, [exit]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')])
    child.stdin.destroy()
    return { code: exit as number | null, stdout, stderr }
  }

  it('returns while its own standard input is still open and unread', async () => {
    expect(await run([], 'cat; echo done; exit 5')).toMatchObject({ code: 5, stdout: 'done\n' })
  })

  it('ends at the timeout while its standard input is still open', async () => {
    expect(await run(['--timeout', '1'], 'echo begun; sleep 600')).toMatchObject({ code: 124, stdout: 'begun\n' })
  })
})
