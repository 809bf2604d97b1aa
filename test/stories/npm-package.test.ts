import { execFile, execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { buildWithinMs, builtPackage } from '../support/built-packages.ts'
import { execute } from '../support/calls.ts'
import { type Glovebox, Place } from '../support/glovebox.ts'

const run = promisify(execFile)

/** As npm installs it: the pinned Node.js is beside the package, the packages that it imports are inside. */
const project = mkdtempSync(join(tmpdir(), 'glovebox-npm-'))
const packages = join(project, 'node_modules')
const command = join(packages, '.bin/glovebox')
let place: Place
let server: Glovebox

beforeAll(async () => {
  const archive = await builtPackage('package')
  // Without the optional packages nothing is downloaded; the one that npm would add is that of this source tree.
  const flags = ['--omit=optional', '--offline', '--no-audit', '--no-fund', '--silent', '--prefix', project]
  await run('npm', ['install', ...flags, archive])
  const node = dirname(dirname(process.execPath))
  await run('cp', ['-a', node, packages])
  // Only root can enter the directories of many users, so the front must not need a path to its program.
  await run('chmod', ['700', project])
  place = new Place(command)
  server = await place.start()
}, buildWithinMs)
afterAll(async () => {
  await place?.remove()
  rmSync(project, { recursive: true })
})

describe('the npm package', () => {
  it('contains JavaScript, and no files that only development needs', () => {
    const installed = join(packages, 'glovebox')
    const files = execFileSync('find', [installed, '-type', 'f'], { encoding: 'utf8' }).split('\n')
    expect(files.filter((path) => /\.(?:ts|map|c|h)$/.test(path))).toEqual([])
    expect(files).toContain(join(installed, 'src/main.js'))
    const manifest = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'))
    expect(manifest.devDependencies).toBeUndefined()
  })

  it('serves from a directory that only root can enter', async () => {
    expect((await execute(server.url, 'python', 'print(6 * 7)')).stdout).toBe('42\n')
    expect((await execute(server.url, 'typescript', 'const n: number = 7; console.log(n)')).stdout).toBe('7\n')
    expect((await execute(server.url, 'bash', 'echo a > b; cat b', { thread_id: 'one' })).stdout).toBe('a\n')
    // A file beside the code, and the thread that reads the database.
    expect((await fetch(`${server.url}/`)).headers.get('content-type')).toContain('text/html')
    const runs = await (await fetch(`${server.url}/v1/executions?limit=5`)).json()
    expect(JSON.stringify(runs)).toContain('"success"')
    expect(server.warnings).toEqual([])
  })

  it('starts the pinned Node.js when that of the machine is too old', async () => {
    const old = join(project, 'old')
    mkdirSync(old)
    // What `#!/usr/bin/env node` finds: a Node.js that reports another version than it has.
    const preload = join(old, 'version.cjs')
    writeFileSync(preload, `Object.defineProperty(process.versions, 'node', { value: '18.20.4' })`)
    writeFileSync(join(old, 'node'), `#!/bin/sh\nexec ${process.execPath} --require ${preload} "$@"\n`, { mode: 0o755 })
    const env = { PATH: `${old}:/usr/bin:/bin` }
    const { stdout } = await run(command, ['status', '--url', server.url, '--json'], { env })
    expect(JSON.parse(stdout)).toMatchObject({ url: server.url })
  })
})

/** A system without the files, the functions and the name of Linux. */
const otherSystem = `
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
Object.defineProperty(process, 'platform', { value: 'PLATFORM' })
for (const name of ['getuid', 'geteuid', 'getgid', 'setuid', 'setgid', 'setgroups']) delete process[name]
for (const name of ['readFileSync', 'openSync', 'statSync', 'readdirSync', 'accessSync']) {
  const real = fs[name]
  fs[name] = (path, ...more) => {
    if (!/^\\/(?:proc|sys|run|dev|var\\/lib)\\//.test(String(path))) return real(path, ...more)
    throw Object.assign(new Error('there is no ' + path), { code: 'ENOENT' })
  }
}
process.dlopen = () => { throw new Error('an addon for Linux') }
syncBuiltinESMExports()
`

describe.each(['darwin', 'win32'])('client commands on %s', (platform) => {
  const work = join(project, platform)
  const client = (...words: string[]) => {
    const preload = `data:text/javascript,${encodeURIComponent(otherSystem.replace('PLATFORM', platform))}`
    const main = join(packages, 'glovebox/bin/glovebox.cjs')
    const env = { PATH: '', HOME: work, APPDATA: work, GLOVEBOX_URL: server.url }
    return run(process.execPath, ['--import', preload, main, ...words], { cwd: work, env })
  }
  beforeAll(() => {
    mkdirSync(work)
    writeFileSync(join(work, 'data.csv'), '1,2\n')
    writeFileSync(join(work, 'script.py'), "print(open('data.csv').read())")
  })

  it('run code, transfer files, and read runs', async () => {
    expect(JSON.parse((await client('status', '--json')).stdout)).toMatchObject({ url: server.url })
    await client('push', 'data.csv', '--thread', platform)
    expect((await client('run', 'script.py', '--thread', platform)).stdout).toBe('1,2\n\n')
    expect((await client('ls', '--thread', platform)).stdout).toContain('data.csv')
    await client('pull', 'data.csv', 'copy.csv', '--thread', platform)
    expect(existsSync(join(work, 'copy.csv'))).toBe(true)
    expect((await client('runs', 'ls')).stdout).toContain('python')
    expect((await client('threads', 'ls')).stdout).toContain(platform)
  })

  it('refuse to serve, and name the way to a server', async () => {
    await expect(client('serve', '--dev')).rejects.toMatchObject({
      code: 78,
      stderr: expect.stringContaining('Servers run on Linux only'),
    })
  })
})
