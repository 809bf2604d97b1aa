import { spawnSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

const steps = fileURLToPath(new URL('../../setup/steps.sh', import.meta.url))

let directory: string
let bin: string
let link: string
/** Where the link leads: runs see the one in `bin`, but not this. */
let through: string
beforeEach(() => {
  directory = realpathSync(mkdtempSync(join(tmpdir(), 'glovebox-link-')))
  bin = join(directory, 'bin-of-the-machine')
  link = join(bin, 'glovebox')
  through = join(directory, 'etc/glovebox-command')
  mkdirSync(bin)
})
afterEach(() => rmSync(directory, { recursive: true }))

/** Makes a copy of the source code, of which only the command matters. */
function copy(name: string): string {
  mkdirSync(join(directory, name, 'bin'), { recursive: true })
  writeFileSync(join(directory, name, 'bin/glovebox'), '#!/bin/sh\n', { mode: 0o755 })
  return join(directory, name)
}

/** Runs the step as set-up does. @returns what it prints. */
function linkCommand(root: string, { uid = 0, path = `${bin}:/usr/bin:/bin` } = {}): string {
  const programs = join(directory, 'programs')
  mkdirSync(programs, { recursive: true })
  writeFileSync(join(programs, 'id'), `#!/bin/sh\necho ${uid}\n`, { mode: 0o755 })
  const { stderr, status } = spawnSync('sh', ['-euc', `. ${steps}; root=${root}; link_command ${bin}`], {
    encoding: 'utf8',
    env: { PATH: `${programs}:${path}` },
  })
  expect(status).toBe(0)
  return stderr
}

const pathHint = (root: string) => `add it to PATH: export PATH="${root}/bin:$PATH"`

describe('the command after set-up', () => {
  it('is linked once, and only mentioned when it is', () => {
    const root = copy('one')
    expect(linkCommand(root)).toBe(`glovebox: the command glovebox is available: ${link}\n`)
    expect([readlinkSync(link), readlinkSync(through)]).toEqual(['../etc/glovebox-command', join(root, 'bin/glovebox')])
    expect(realpathSync(link)).toBe(join(root, 'bin/glovebox'))
    expect(linkCommand(root)).toBe('')
  })

  it('never replaces the link of another copy that works, or another program', () => {
    linkCommand(copy('one'))
    expect(linkCommand(copy('two'))).toContain(pathHint(join(directory, 'two')))
    expect(readlinkSync(through)).toBe(join(directory, 'one/bin/glovebox'))
    rmSync(link)
    writeFileSync(link, 'another program', { mode: 0o644 })
    expect(linkCommand(copy('two'))).toContain(pathHint(join(directory, 'two')))
    expect(readFileSync(link, 'utf8')).toBe('another program')
  })

  it('replaces the link of a copy that was deleted, but no other broken link', () => {
    linkCommand(copy('one'))
    rmSync(join(directory, 'one'), { recursive: true })
    linkCommand(copy('two'))
    expect(readlinkSync(through)).toBe(join(directory, 'two/bin/glovebox'))
    rmSync(link)
    symlinkSync(join(directory, 'not mounted now/other'), link)
    expect(linkCommand(copy('two'))).toContain('add it to PATH')
    expect(readlinkSync(link)).toBe(join(directory, 'not mounted now/other'))
    expect(readdirSync(bin)).toEqual(['glovebox'])
  })

  it('no longer has a link with the path of the copy, which runs could read', () => {
    const root = copy('one')
    symlinkSync(join(root, 'bin/glovebox'), link)
    expect(linkCommand(root)).toBe('')
    expect([readlinkSync(link), realpathSync(link)]).toEqual(['../etc/glovebox-command', join(root, 'bin/glovebox')])
  })

  it('is not linked beside another program of that name in PATH, or without root', () => {
    const other = join(directory, 'other')
    mkdirSync(other)
    writeFileSync(join(other, 'glovebox'), '#!/bin/sh\n', { mode: 0o755 })
    expect(linkCommand(copy('one'), { path: `/usr/bin:/bin:${other}` })).toContain('add it to PATH')
    expect(linkCommand(copy('one'), { uid: 1000 })).toContain('add it to PATH')
    expect(existsSync(link)).toBe(false)
  })

  it('is mentioned as missing where the directory of the link is not in PATH', () => {
    expect(linkCommand(copy('one'), { path: '/usr/bin:/bin' })).toContain('add it to PATH')
  })
})
