import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { receiveConfig, sendConfig } from '../../../src/cli/hand-over.ts'
import { loadConfig } from '../../../src/config.ts'
import { variableOf } from '../../../src/setting.ts'
import { settings } from '../../../src/settings.ts'

const root = fileURLToPath(new URL('../../../', import.meta.url))
let directory: string
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'glovebox-program-'))
})
afterAll(() => rmSync(directory, { recursive: true }))

interface Ended {
  code: number
  out: string
  err: string
}

/** Runs the program in its own process. */
async function glovebox(words: string[], env: Record<string, string> = {}, program = ''): Promise<Ended> {
  const command: [string, string[]] =
    program === '' ? [process.execPath, [join(root, 'src/main.ts'), ...words]] : [program, words]
  const child = spawn(command[0], command[1], { cwd: directory, env: { PATH: process.env.PATH ?? '', ...env } })
  child.stdin.end()
  const ended = { out: '', err: '' }
  child.stdout.on('data', (chunk) => (ended.out += chunk))
  child.stderr.on('data', (chunk) => (ended.err += chunk))
  const [code] = (await once(child, 'close')) as [number]
  return { code, ...ended }
}

describe('glovebox config show', () => {
  it('prints every setting with its value and source', async () => {
    const { code, out } = await glovebox(['config', 'show', '--limit-memory', '1GiB'], { GLOVEBOX_PORT: '6001' })
    expect(code).toBe(0)
    for (const name of Object.keys(settings)) expect(out).toMatch(new RegExp(`^${name} `, 'm'))
    expect(out).toMatch(/^port +6001 +variable$/m)
    expect(out).toMatch(/^limit_memory +1GiB +flag$/m)
    expect(out).toMatch(/^slots_max +\d+ +default$/m)
  })

  it('reads the file that --config or GLOVEBOX_CONFIG names', async () => {
    const file = join(directory, 'glovebox.yaml')
    writeFileSync(file, 'port: 6002\nprofiles:\n  small: { limit_pids: 8 }\n')
    for (const [words, env] of [
      [['--config', file], {}],
      [[], { GLOVEBOX_CONFIG: file }],
    ] as const) {
      const { out } = await glovebox(['config', 'show', ...words], env)
      expect(out).toMatch(/^port +6002 +file$/m)
      expect(out).toMatch(/^profile small .*"pids":8/m)
    }
  })

  it('says that a master key is set without printing it, and keeps the columns narrow', async () => {
    const key = Buffer.alloc(32, 'k').toString('base64')
    const { out } = await glovebox(['config', 'show'], { GLOVEBOX_MASTER_KEY: key })
    expect(out).toMatch(/^master_key +\(set, hidden\) +variable$/m)
    expect(out).toMatch(/^port +5555 {20,44}default$/m)
    expect(out).not.toContain(key)
  })

  it('warns of a former name and of what replaces it', async () => {
    const { out, err } = await glovebox(['config', 'show', '--no-jails-ahead'])
    expect(out).toMatch(/^prewarm_jails +false +flag$/m)
    expect(err).toContain('The flag --jails-ahead is deprecated; use --prewarm-jails.')
  })

  it('never prints the value of a variable', async () => {
    const { out, err } = await glovebox(['config', 'show', '--env', 'TOKEN_A=hunter2'])
    expect(out).toContain('TOKEN_A')
    expect(out + err).not.toContain('hunter2')
  })
})

describe('the exit code', () => {
  const cases: [title: string, words: string[], code: number, err: RegExp][] = [
    ['is 0 for the version', ['version'], 0, /^$/],
    ['is 0 for help', ['serve', '--help'], 0, /^$/],
    ['is 64 without a command', [], 64, /Usage/],
    ['is 64 for an unknown command', ['sevre'], 64, /serve/],
    ['is 64 for an unknown flag', ['serve', '--prot', '1'], 64, /--port/],
    ['is 64 for a flag without its value', ['serve', '--port'], 64, /--port/],
    ['is 64 for a word too many', ['config', 'show', 'x'], 64, /argument/],
    ['is 78 for a wrong setting', ['serve', '--port', 'x'], 78, /--port: "x".*\n.*docs\/configuration.md/],
    ['is 78 for a file that is missing', ['serve', '--config', '/nowhere/x'], 78, /Cannot read the configuration file/],
    ['is 70 for an inner command that nobody handed a configuration', ['runner'], 70, /glovebox serve/],
  ]
  for (const [title, words, code, err] of cases) {
    it(title, async () => {
      const ended = await glovebox(words)
      expect([ended.code, ended.err]).toEqual([code, expect.stringMatching(err)])
    })
  }

  it('is 78 for an unknown variable', async () => {
    const ended = await glovebox(['serve'], { GLOVEBOX_PROT: '1' })
    expect(ended).toMatchObject({ code: 78, err: expect.stringContaining('GLOVEBOX_PORT') })
  })
})

describe('the command line', () => {
  it('has a flag and a variable for every setting', async () => {
    const { out } = await glovebox(['serve', '--help'])
    for (const name of Object.keys(settings)) {
      expect(out).toContain(`--${name.replaceAll('_', '-')}`)
      expect(variableOf(name)).toMatch(/^GLOVEBOX_[A-Z_]+$/)
    }
  })

  it('hides the internal commands of the supervisor', async () => {
    const { out } = await glovebox(['--help'])
    expect(out).not.toMatch(/^ +(runner|front)\b/m)
  })

  it('works through symbolic links, from any directory', async () => {
    symlinkSync(join(root, 'bin/glovebox'), join(directory, 'first'))
    symlinkSync('first', join(directory, 'second'))
    expect(await glovebox(['version'], {}, join(directory, 'second'))).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
    })
  })
})

describe('passing the configuration to a child process', () => {
  const config = loadConfig({ flags: { env: ['SECRET_A=ü'] }, env: {}, file: undefined })

  it('transfers all of it, and then reports when the parent is gone', async () => {
    const pipe = new PassThrough()
    sendConfig(pipe, config)
    expect(await receiveConfig(pipe)).toEqual(config)
    expect(pipe.readableEnded).toBe(false)
    const ended = once(pipe, 'end')
    pipe.resume()
    pipe.end()
    await ended
  })

  it('works for every split of the data', async () => {
    const whole = new PassThrough()
    sendConfig(whole, config)
    const bytes = whole.read() as Buffer
    const pipe = new PassThrough()
    const received = receiveConfig(pipe)
    for (const byte of bytes) pipe.write(Buffer.of(byte))
    expect(await received).toEqual(config)
  })

  it('fails when the parent is gone before the end', async () => {
    const pipe = new PassThrough()
    pipe.end('{"host":')
    await expect(receiveConfig(pipe)).rejects.toThrow(/glovebox serve/)
  })
})
