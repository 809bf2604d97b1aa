/** Cases from public bug reports about output, with our own inputs. */
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { callTool, execute, follow, post } from '../support/calls.ts'
import { until } from '../support/glovebox.ts'
import { slotsOf } from '../support/machine.ts'
import { openStory } from '../support/story.ts'

const softBytes = 64 * 1024
const story = openStory([
  '--no-prewarm-jails',
  '--output-soft',
  `${softBytes}`,
  '--output-hard',
  '8GiB',
  '--runs-max',
  '8',
])

const nothingRuns = () => slotsOf(story.place).every(({ runPids }) => runPids.length === 0)

describe('binary output', () => {
  it.each([
    ['python', 'import sys\nfor out in sys.stdout, sys.stderr: out.buffer.write(b"a\\xff\\xc0z\\n")'],
    ['node', 'for (const out of [process.stdout, process.stderr]) out.write(Buffer.from([97, 255, 192, 122, 10]))'],
    ['bash', 'printf "a\\xff\\xc0z\\n" | tee /dev/stderr'],
  ])('of %s are marked, in both streams, and do not fail the run', async (language, code) => {
    const run = await execute(story.url, language, code)
    const text = 'a\ufffd\ufffdz\n'
    expect(run).toMatchObject({ stdout: text, stderr: text, exit_code: 0, stdout_bytes: 5, stderr_bytes: 5 })
    const answer = await callTool(story.url, { language, code })
    expect(answer.body.result).toMatchObject({ isError: false, structuredContent: { stdout: text, stderr: text } })
  })

  it('is returned byte for byte on request', async () => {
    const bytes = randomBytes(40_000)
    const response = await fetch(`${story.url}/v1/sandbox/execute?encoding=base64`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/x-ndjson' },
      body: JSON.stringify({ language: 'bash', code: `base64 -d <<< ${bytes.toString('base64')}` }),
    })
    const lines = (await response.text()).trim().split('\n')
    const pieces = lines.map((line) => JSON.parse(line) as { type: string; data_base64?: string })
    const out = pieces.filter(({ type }) => type === 'stdout').map((piece) => Buffer.from(piece.data_base64!, 'base64'))
    expect(Buffer.concat(out).equals(bytes)).toBe(true)
  })
})

describe('a multi-byte character', () => {
  it('stays whole at every common buffer boundary', async () => {
    const ends = [4096, 8192, 16_384, 32_768].flatMap((size) => [size - 3, size - 2, size - 1, size])
    const code = `import sys\nfor at in ${JSON.stringify(ends)}:\n    sys.stdout.write("x" * at + "😀€é")\n    print()`
    const [all, followed] = [await execute(story.url, 'python', code, {}), await follow(story.url, 'python', code)]
    await followed.result
    // Past the soft limit only head and tail are kept; the omitted part also consists of whole characters.
    expect(all.stdout_truncated).toBe(true)
    expect(all.stdout).not.toContain('\ufffd')
    for (const at of ends.slice(0, 8)) {
      const one = await execute(story.url, 'python', `print("x" * ${at} + "😀€é", end="")`)
      expect(one.stdout).toBe(`${'x'.repeat(at)}😀€é`)
    }
    expect(followed.output).not.toContain('\ufffd')
  })
})

describe('lines of output', () => {
  it('are kept when blank, and the last one needs no line break', async () => {
    const text = '\n\n  first\n\n\n\tsecond\r\n\nlast'
    for (const [language, code] of [
      ['python', `import sys; sys.stdout.write(${JSON.stringify(text)})`],
      ['node', `process.stdout.write(${JSON.stringify(text)})`],
      ['bash', `printf '%b' '${text.replaceAll('\n', '\\n').replaceAll('\t', '\\t').replaceAll('\r', '\\r')}'`],
    ] as const) {
      expect((await execute(story.url, language, code)).stdout).toBe(text)
      expect((await callTool(story.url, { language, code })).body.result?.structuredContent.stdout).toBe(text)
      const run = await follow(story.url, language, code)
      await run.result
      expect(run.output).toBe(text)
    }
  })

  it('past the soft limit are counted while the run ends normally', async () => {
    const line = 'a line of thirty-two characters'
    const run = await execute(story.url, 'bash', `for i in {1..3000}; do echo "${line}"; done; exit 4`)
    expect(run).toMatchObject({
      ending: { kind: 'exited', code: 4 },
      stdout_truncated: true,
      stdout_bytes: 3000 * (line.length + 1),
    })
    expect(run.stdout.length).toBeGreaterThan(softBytes / 2)
    const text = (await callTool(story.url, { language: 'bash', code: `for i in {1..3000}; do echo "${line}"; done` }))
      .body
    expect(text.result?.content[0]?.text).toMatch(/stdout truncated:\*\* \d+ of 96000 bytes left out/)
  })

  it('of a failing command stay separate from its standard output', async () => {
    const run = await execute(story.url, 'bash', 'echo before; ls /nowhere; echo after')
    expect(run).toMatchObject({ stdout: 'before\nafter\n', exit_code: 0 })
    expect(run.stderr).toMatch(/^ls: .*\/nowhere.*\n$/)
  })
})

describe('a hundred megabytes of output', () => {
  it.each([
    ['python', 'import sys\nfor _ in range(1600): sys.stdout.write("y" * 65536)'],
    ['bash', 'head -c 104857600 /dev/zero'],
    ['node', 'const b = Buffer.alloc(65536, "y"); for (let i = 0; i < 1600; i++) process.stdout.write(b)'],
  ])('of %s are counted to the last byte', async (language, code) => {
    expect(await execute(story.url, language, code, { timeout: 60 })).toMatchObject({
      ending: { kind: 'exited', code: 0 },
      stdout_bytes: 104_857_600,
      stdout_truncated: true,
    })
  })

  it('arrives in one-byte lines as well', async () => {
    expect(await execute(story.url, 'bash', 'yes "" | head -c 20000000', { timeout: 60 })).toMatchObject({
      exit_code: 0,
      stdout_bytes: 20_000_000,
    })
  })
})

describe('endless output', () => {
  const residentBytes = (pid: number) =>
    Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024

  it('does not fill the memory of the server, whether a client reads it, reads it slowly or does not read it', async () => {
    const pids = [story.server.frontPid, story.server.runnerPid]
    await execute(story.url, 'bash', 'timeout 1 yes', { timeout: 10 })
    const before = pids.map(residentBytes)
    const cancelled: string[] = []
    const flood = async () => {
      const run = await follow(story.url, 'bash', 'yes flood', { timeout: 60 })
      cancelled.push(run.runId)
      return run
    }
    const slow = await fetch(`${story.url}/v1/sandbox/execute`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/x-ndjson' },
      body: JSON.stringify({ language: 'bash', code: 'yes slow', timeout: 60 }),
    })
    const buffered = post(`${story.url}/v1/sandbox/execute`, { language: 'bash', code: 'yes none', timeout: 4 })
    const floods = [await flood(), await flood()]
    let most = [0, 0]
    for (let look = 0; look < 12; look++) {
      await sleep(250)
      most = pids.map((pid, at) => Math.max(most[at]!, residentBytes(pid) - before[at]!))
    }
    for (const grown of most) expect(grown).toBeLessThan(96 * 1024 * 1024)
    for (const runId of cancelled) await post(`${story.url}/v1/executions/${runId}/cancel`, {})
    for (const run of floods) expect(await run.result).toMatchObject({ ending: { kind: 'cancelled' } })
    await slow.body?.cancel()
    expect((await buffered).body).toMatchObject({ ending: { kind: 'timed_out' }, stdout_truncated: true })
    const row = story.place.runs().find(({ ending }) => ending === null)
    if (row) await post(`${story.url}/v1/executions/${row.id}/cancel`, {})
    await until(nothingRuns, 'every run has ended')
  })
})

describe('output before a timeout', () => {
  it.each([
    ['python', 'print("kept", end=""); import time; time.sleep(60)'],
    [
      'python, in a child',
      'import subprocess, sys; subprocess.run([sys.executable, "-c", "print(\'kept\', end=\'\'); import time; time.sleep(60)"])',
    ],
    ['node', 'process.stdout.write("kept"); setInterval(() => {}, 1000)'],
    ['node, busy', 'process.stdout.write("kept"); for (;;) {}'],
    ['bash', 'printf kept; sleep 60'],
    ['bash, in a python', "python3 -c \"print('kept', end=''); import time; time.sleep(60)\""],
    ['bash, in a pipe', 'printf kept | cat; sleep 60'],
  ])('is in the answer, also where the program did not flush it: %s', async (what, code) => {
    const run = await execute(story.url, what.split(',')[0]!, code, { timeout: 1 })
    expect(run).toMatchObject({ ending: { kind: 'timed_out', limit_ms: 1000 }, stdout: 'kept' })
  })
})
