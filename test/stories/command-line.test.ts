import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { program, until, within } from '../support/glovebox.ts'
import { slotsOf } from '../support/machine.ts'
import { openStory } from '../support/story.ts'

const story = openStory(['--no-prewarm-jails', '--no-prewarm-jails'], { expectNoWarnings: true })

/** Writes a program file. */
function file(name: string, text: string): string {
  const path = join(story.place.directory, name)
  writeFileSync(path, text)
  return path
}

/** Runs `glovebox` with these arguments in its own process. */
function start(words: string[], input = '', env: Record<string, string> = { GLOVEBOX_URL: story.url }) {
  const child = spawn(program, words, { env: { PATH: process.env.PATH ?? '', ...env } })
  const said = { stdout: '', stderr: '' }
  child.stdout.setEncoding('latin1').on('data', (text: string) => (said.stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said.stderr += text))
  child.stdin.on('error', () => undefined)
  child.stdin.end(input)
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, ...said }))
  return { child, said, ended: within(ended, 30_000, 'the command ends') }
}

const run = (...words: string[]) => start(['run', ...words]).ended
const nothingRuns = () => slotsOf(story.place).every(({ runPids }) => runPids.length === 0)

describe('glovebox run', () => {
  it.each([
    ['a.py', 'import sys\nprint("python", sys.version_info[0])\nsys.exit(3)', 'python 3\n', 3],
    ['a.mjs', 'import "node:fs"\nconsole.log("node")\nprocess.exit(4)', 'node\n', 4],
    ['a.cjs', 'console.log(typeof require("node:fs"))', 'object\n', 0],
    ['a.ts', 'const n: number = 42\nconsole.log(n)\nprocess.exit(6)', '42\n', 6],
    ['a.sh', 'echo bash; exit 5', 'bash\n', 5],
    ['named-for-nothing', '#!/usr/bin/env bash\necho by its first line', 'by its first line\n', 0],
  ])('runs %s and exits with its code', async (name, text, stdout, code) => {
    expect(await run(file(name, text))).toEqual({ code, stdout, stderr: '' })
  })

  it('runs code from standard input', async () => {
    expect(await start(['run', '-', '--language', 'bash'], 'echo from here').ended).toMatchObject({
      stdout: 'from here\n',
      code: 0,
    })
    expect(await start(['run', '-'], 'print("python by default")').ended).toMatchObject({
      stdout: 'python by default\n',
    })
  })

  it('passes standard input, variables and a time limit', async () => {
    const input = file('input.txt', 'some input')
    const path = file('b.sh', 'cat; echo " $A"; sleep 30')
    const ended = await run(path, '--stdin', input, '--env', 'A=a b', '--timeout', '1')
    expect(ended).toMatchObject({ code: 124, stdout: 'some input a b\n' })
    expect(ended.stderr).toMatch(/killed after 1 s \(timed out\)/)
  })

  it('passes both output streams through, byte for byte', async () => {
    const path = file('c.sh', String.raw`printf 'a\0\377\303b'; printf 'e\n' >&2`)
    expect(await run(path)).toEqual({ code: 0, stdout: 'a\0\xff\xc3b', stderr: 'e\n' })
  })

  it('streams output while the program runs, and cancels it on Ctrl-C', async () => {
    const { child, said, ended } = start(['run', file('d.py', 'print("on")\nimport time\ntime.sleep(60)')])
    await until(() => said.stdout === 'on\n', 'the first line is there')
    child.kill('SIGINT')
    expect(await ended).toMatchObject({ code: 130, stderr: 'glovebox run: cancelled\n' })
    await until(nothingRuns, 'no process of it is left')
    expect(story.place.runs().at(-1)?.ending).toBe('{"kind":"cancelled"}')
  })

  it('reports how a program died, and exits like a shell', async () => {
    const ended = await run(file('e.sh', 'kill -SEGV $$'))
    expect(ended.code).toBe(128 + 11)
    expect(ended.stderr).toMatch(/ended by signal SIGSEGV/)
  })

  it('saves figures beside the file, also after an exception', async () => {
    const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
    const show = `import base64, os, struct
image = base64.b64decode('${png}')
os.write(int(os.environ['GLOVEBOX_IMAGES']), struct.pack('<IBBH', len(image), 1, 1, 0) + image)
print('shown')
raise SystemExit(3)
`
    const saved = join(story.place.directory, 'plot-figure-1.png')
    expect(await run(file('plot.py', show))).toEqual({
      ...{ code: 3, stdout: 'shown\n' },
      stderr: `glovebox run: figure saved: ${saved}\n`,
    })
    expect(readFileSync(saved).toString('base64')).toBe(png)
    const elsewhere = join(story.place.directory, 'figures')
    const { stdout } = await run(join(story.place.directory, 'plot.py'), '--json', '--figures', elsewhere)
    expect(JSON.parse(stdout)).toMatchObject({ exit_code: 3, figures: [join(elsewhere, 'plot-figure-1.png')] })
    rmSync(saved)
    expect(await run(join(story.place.directory, 'plot.py'), '--no-figures')).toMatchObject({ code: 3, stderr: '' })
    expect(existsSync(saved)).toBe(false)
  })

  it('explains why nothing ran', async () => {
    expect(await run(join(story.place.directory, 'gone.py'))).toMatchObject({
      code: 125,
      stderr: expect.stringMatching(/cannot read .*gone.py/),
    })
    expect(await run(file('f.py', ''))).toMatchObject({
      code: 125,
      stderr: expect.stringMatching(/the server refused the request: code must be/),
    })
    expect(await run(file('g.py', '1'), '--timeout', 'soon')).toMatchObject({ code: 64 })
    expect(await run(file('g.py', '1'), '--language', 'cobol')).toMatchObject({
      code: 125,
      stderr: expect.stringMatching(/cobol/),
    })
    expect(await run(file('g.py', '1'), '--url', 'http://127.0.0.1:1')).toMatchObject({
      code: 125,
      stderr: expect.stringMatching(/cannot connect to a server at/),
    })
    expect(await start(['run']).ended).toMatchObject({ code: 64 })
  })

  it('exits when its reader closes the pipe', async () => {
    const { child, ended } = start(['run', file('h.sh', 'while :; do echo more; sleep 0.01; done'), '--timeout', '2'])
    await once(child.stdout, 'data')
    child.stdout.destroy()
    expect([124, 0, 141]).toContain((await ended).code)
    await until(nothingRuns, 'no process of it is left')
  })
})

describe('a command of the same user', () => {
  const beside = (...words: string[]) =>
    start(words, '', { GLOVEBOX_STATE_DIR: join(story.place.directory, 'state') }).ended

  it('finds the server of this machine on any port, and needs no key in development mode', async () => {
    const { code, stdout } = await beside('status', '--json')
    expect([code, JSON.parse(stdout)]).toEqual([
      0,
      expect.objectContaining({ url: story.url, ready: true, access: 'no key required' }),
    ])
    expect(await beside('run', file('found.sh', 'echo found'))).toMatchObject({ code: 0, stdout: 'found\n' })
  })

  it('takes no address from a link that the API server could make', async () => {
    const address = join(story.place.directory, 'home', 'front', 'address')
    const content = readFileSync(address)
    const target = file('other-address', content.toString())
    rmSync(address)
    try {
      symlinkSync(target, address)
      expect((await beside('status')).stdout).not.toContain(story.url)
      rmSync(address)
      writeFileSync(address, 'http://203.0.113.1:80\n')
      expect((await beside('status')).stderr).not.toContain('203.0.113.1')
    } finally {
      rmSync(address)
      writeFileSync(address, content)
    }
  })
})

describe('administration commands beside a server in development mode', () => {
  const administer = (...args: string[]) => {
    const own = ['--home', join(story.place.directory, 'home'), '--state-dir', join(story.place.directory, 'state')]
    return start([...args, ...own, '--front-uid', `${story.place.frontUid}`, '--front-gid', `${story.place.frontUid}`])
      .ended
  }

  it('take the organization of development mode as the default one', async () => {
    expect(await administer('volumes', 'create', 'shared')).toMatchObject({ code: 0, stderr: '' })
    for (const args of [[], ['--org', 'default'], ['--org', 'Development']]) {
      expect((await administer('volumes', 'list', ...args)).stdout).toMatch(/^shared +vol_/m)
    }
    expect(await administer('volumes', 'list', '--no-dev', '--org', 'other')).toMatchObject({ code: 64 })
  })

  it('print lists as JSON', async () => {
    const { stdout } = await administer('orgs', 'list', '--json')
    expect(JSON.parse(stdout)).toMatchObject([{ id: 'org_dev', name: 'Development' }])
  })

  it('print what they did as JSON', async () => {
    const json = async (...args: string[]) => {
      const { code, stdout, stderr } = await administer(...args, '--json')
      expect([code, stderr]).toEqual([0, ''])
      return JSON.parse(stdout) as Record<string, unknown>
    }
    expect(await json('keys', 'create', '--name', 'ci')).toMatchObject({
      name: 'ci',
      secret: expect.stringMatching(/^sk-us-/),
    })
    expect(await json('tools', 'hide', 'files_upload')).toEqual({ name: 'files_upload', state: 'hidden' })
  })

  it('print the configuration as JSON', async () => {
    expect(JSON.parse((await start(['config', 'show', '--json', '--port', '6000']).ended).stdout)).toMatchObject({
      settings: { port: { value: 6000, source: 'flag' }, master_key: { value: '(not set)' } },
      profiles: [{ name: 'default' }],
    })
  })
})

describe('the program', () => {
  it('prints its version and its commands', async () => {
    expect(await start(['--version']).ended).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
    })
    expect(await start(['--help']).ended).toMatchObject({ code: 0, stdout: expect.stringMatching(/serve[\s\S]*run/) })
    expect(await start(['no-such-command']).ended).toMatchObject({
      code: 64,
      stderr: expect.stringMatching(/no-such-command/),
    })
    expect(await start(['runner'], '{}').ended).toMatchObject({ code: 70 })
  })
})
