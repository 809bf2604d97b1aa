import { lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { TargetDirectory } from '../../../src/cli/files/target-directory.ts'

let base: string
let outside: string
let inside: string
let target: TargetDirectory
beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'glovebox-target-'))
})
afterAll(() => rm(base, { recursive: true }))
beforeEach(async () => {
  await rm(base, { recursive: true })
  ;[outside, inside] = [join(base, 'outside'), join(base, 'inside')]
  await mkdir(outside, { recursive: true })
  await writeFile(join(outside, 'kept'), 'kept')
  target = await TargetDirectory.open(inside)
})

const write = (path: string, content = 'new') =>
  target.write(path, Readable.from([Buffer.from(content)]), Buffer.byteLength(content))
const untouched = async () => {
  expect(await readdir(outside)).toEqual(['kept'])
  expect(await readFile(join(outside, 'kept'), 'utf8')).toBe('kept')
  expect((await readdir(base)).sort()).toEqual(['inside', 'outside'])
}

describe('files written to a target directory', () => {
  it('create their directories, and replace earlier files completely', async () => {
    await write('a/b/file', 'first and longer')
    await write('a/b/file', 'second')
    expect(await readFile(join(inside, 'a/b/file'), 'utf8')).toBe('second')
    expect(await readdir(join(inside, 'a/b'))).toEqual(['file'])
  })

  it.each(['../outside/kept', '/etc/hostname', 'a/../../outside/kept', '..', 'a\0b'])(
    'never leave it as %j',
    async (path) => {
      await expect(write(path)).rejects.toThrow(/outside of the target directory|cannot write/)
      await untouched()
    },
  )

  it('never pass a link to a directory', async () => {
    await symlink(outside, join(inside, 'link'))
    await expect(write('link/kept')).rejects.toThrow(/symbolic links are not followed/)
    await expect(write('link/new/file')).rejects.toThrow(/symbolic links are not followed/)
    await expect(target.makeDirectory('link/new')).rejects.toThrow(/symbolic links are not followed/)
    await untouched()
  })

  it('replace a link to a file instead of following it', async () => {
    await symlink(join(outside, 'kept'), join(inside, 'file'))
    await write('file')
    expect((await lstat(join(inside, 'file'))).isFile()).toBe(true)
    await untouched()
  })

  it('are not replaced, and leave nothing behind, when bytes are missing or the source fails', async () => {
    await write('file', 'old')
    await expect(target.write('file', Readable.from([Buffer.from('ha')]), 4)).rejects.toThrow(
      'file ended after 2 of 4 bytes',
    )
    const failing = new Readable({ read: () => failing.destroy(new Error('connection lost')) })
    await expect(target.write('file', failing, 4)).rejects.toThrow('connection lost')
    await mkdir(join(inside, 'directory'))
    await expect(write('directory')).rejects.toThrow('cannot write directory: EISDIR')
    expect(await readFile(join(inside, 'file'), 'utf8')).toBe('old')
    expect((await readdir(inside)).sort()).toEqual(['directory', 'file'])
  })
})
