/** `glovebox images build` with interruptions: a killed command, and a killed runner. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { execute } from '../support/calls.ts'
import { unpackDebian } from '../support/debian-packages.ts'
import { killIfThere, program, until, within } from '../support/glovebox.ts'
import { allProcesses } from '../support/machine.ts'
import { openStory } from '../support/story.ts'

const hasPackages = (await unpackDebian('busybox-static')) !== undefined
/** The end of titles of tests that are skipped because no packages can be downloaded; .ci/report.ts counts them apart. */
const reason = hasPackages ? '' : ' (no package registry)'
const withinMs = 240_000

const story = openStory(['--image-size', '1GiB'])
const packagesDir = () => join(story.place.directory, 'home/images/packages')

/** Runs `glovebox images` in its own process. */
const images = (...words: string[]) => {
  const { directory } = story.place
  const places = ['--home', join(directory, 'home'), '--state-dir', join(directory, 'state')]
  const child = spawn(program, ['images', ...words, ...places], { env: { PATH: process.env.PATH ?? '' } })
  const said = { stdout: '', stderr: '' }
  child.stdout.setEncoding('utf8').on('data', (text: string) => (said.stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said.stderr += text))
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, ...said }))
  return { child, said, ended: within(ended, withinMs, `the end of images ${words[0]}`) }
}

describe('the image data', () => {
  it('is the image of the profile default in development mode as soon as it exists', async () => {
    const root = join(story.place.directory, 'root')
    const loaded = execFileSync('ldd', ['/usr/bin/bash', '/usr/bin/cat'], { encoding: 'utf8' }).match(/\/\S+/g) ?? []
    for (const path of ['/usr/bin/bash', '/usr/bin/cat', ...loaded].filter((path) => existsSync(path))) {
      mkdirSync(join(root, dirname(path)), { recursive: true })
      copyFileSync(path, join(root, path))
    }
    writeFileSync(join(root, 'usr/own'), 'of the image')
    const own = async () => (await execute(story.url, 'bash', 'cat /usr/own')).stdout
    expect(await own()).toBe('')
    expect((await images('import', 'data', root).ended).code).toBe(0)
    expect(await own()).toBe('of the image')
    expect((await images('rm', 'data').ended).code).toBe(0)
    expect(await own()).toBe('')
  })
})

describe.skipIf(!hasPackages)(`an image of Debian packages${reason}`, () => {
  const build = () => images('build', 'own', '--package', 'jq')

  /** Complete packages of the downloads: a file that is downloaded again has another inode. */
  const downloaded = () =>
    new Map(
      readdirSync(join(packagesDir(), 'archives'))
        .filter((file) => file.endsWith('.deb'))
        .map((file) => [file, statSync(join(packagesDir(), 'archives', file)).ino]),
    )
  const ownProcesses = () => allProcesses().filter(({ words }) => words.some((word) => word === 'apt-get'))
  const killed = async (child: ChildProcess, ended: Promise<unknown>) => {
    child.kill('SIGKILL')
    await ended
  }

  it('continues after the command and the runner were killed, with what was downloaded', {
    timeout: 2 * withinMs,
  }, async () => {
    const first = build()
    await until(
      () => existsSync(join(packagesDir(), 'archives')) && downloaded().size >= 5,
      'packages arrive',
      withinMs,
    )
    await killed(first.child, first.ended)
    await until(() => ownProcesses().length === 0, 'the download ends with the command')
    const kept = downloaded()

    const second = build()
    await until(() => second.said.stderr.includes('installing'), 'packages are installed', withinMs)
    const all = downloaded()
    expect([...kept].filter(([file, inode]) => all.get(file) !== inode)).toEqual([])
    killIfThere(story.server.runnerPid)
    expect((await second.ended).code).not.toBe(0)
    await until(async () => (await story.server.readiness()) === 200, 'the next runner is ready')
    expect(JSON.parse((await images('ls', '--json').ended).stdout || '[]')).toEqual([])

    // A crash can leave a file with the right size and without its content.
    const [damaged = ''] = all.keys()
    const path = join(packagesDir(), 'archives', damaged)
    writeFileSync(path, Buffer.alloc(statSync(path).size))
    const third = await build().ended
    expect(third).toMatchObject({ code: 0, stdout: expect.stringMatching(/^own: .*MiB/) })
    const final = downloaded()
    expect([...all].filter(([file, inode]) => final.get(file) !== inode).map(([file]) => file)).toEqual([damaged])
    expect(existsSync(join(packagesDir(), 'selected'))).toBe(false)
    expect(readdirSync(join(story.place.directory, 'home/images/disks/images/local'))).toHaveLength(1)
    const shown = JSON.parse((await images('show', 'own', '--json').ended).stdout) as { programs: string[] }
    expect(shown.programs).toContain('jq')
  })
})
