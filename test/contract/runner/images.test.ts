import { execFileSync } from 'node:child_process'
import { copyFileSync, existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createSlot } from '../../../src/engine/slots/create-slot.ts'
import { archive, type Entry } from '../../support/archives.ts'
import { start, testLimits } from '../../support/engine-machine.ts'
import { type ImageRoom, openImageRoom } from '../../support/image-fixture.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'

const quiet = () => undefined

/** Copies bash and what it loads: the smallest directory that can be an image. */
function writeBashRoot(root: string): void {
  const loaded = execFileSync('ldd', ['/usr/bin/bash', '/usr/bin/stat'], { encoding: 'utf8' }).match(/\/\S+/g) ?? []
  for (const path of ['/usr/bin/bash', '/usr/bin/stat', ...loaded].filter((path) => existsSync(path))) {
    mkdirSync(join(root, dirname(path)), { recursive: true })
    copyFileSync(path, join(root, path))
  }
}

inPrivateMounts(import.meta.filename, () => {
  let room: ImageRoom
  let number = 0

  beforeAll(async () => {
    room = await openImageRoom()
  })

  afterAll(async () => {
    expect(await room.close()).toEqual([])
  })

  const imported = (name: string, path: string) =>
    room.images.change({ kind: 'import', name, path }, quiet, new AbortController().signal)

  /** Makes an image of one layer and returns its root directory, which is mounted until `release`. */
  async function unpacked(content: Buffer) {
    number += 1
    const name = `layer-${number}`
    const record = await imported(name, room.file(`${name}.tar`, content))
    const used = await room.images.use(record)
    return { root: used.mounted.path, record, release: used.release }
  }

  const refusal = (content: Buffer) =>
    imported('refused', room.file('refused.tar', content)).then(
      () => 'accepted',
      (error: Error) => error.message,
    )

  describe('an image from a directory', () => {
    it('is the root of slots, with the languages that it has and without the files of the machine', async () => {
      const root = join(room.dir, 'rootfs')
      writeBashRoot(root)
      const record = await imported('own/bash:1', root)
      expect(record.languages.map(({ language }) => language)).toEqual(['bash'])
      const used = await room.images.use(record)
      const slot = await createSlot({ ...room.host, image: used.image, languages: used.languages })
      slot.bind(testLimits)
      const code =
        'echo $HOME; echo /usr/bin/*; stat -c "%u:%g %a" / /usr/bin/bash; echo x >/usr/x; echo y >y; read <y; echo $REPLY'
      const ran = await start(slot, 'bash', code).ran
      expect(ran.stdout).toBe('/home/baponi\n/usr/bin/bash /usr/bin/stat\n0:0 755\n65534:65534 755\ny\n')
      expect(ran.stderr).toContain('Read-only file system')
      await slot.destroy()
      used.release()
    })
  })

  describe('a layer', () => {
    it('keeps owners, modes, times and hard links, and skips devices and owners that no image has', async () => {
      const entries: Entry[] = [
        { name: './', type: '5' },
        { name: 'bin/tool', content: 'tool', mode: 0o4755, uid: 7, gid: 8 },
        { name: 'bin/same', type: '1', link: 'bin/tool' },
        { name: 'dev/null', type: '3' },
        { name: 'dev/disk', type: '4' },
        { name: 'pipe', type: '6' },
        { name: 'large', content: 'x', uid: 70_000, gid: 3 },
      ]
      const { root, release } = await unpacked(archive(...entries))
      const tool = lstatSync(join(root, 'bin/tool'))
      expect([tool.mode & 0o7777, tool.uid, tool.gid, tool.nlink, tool.mtimeMs]).toEqual([
        0o4755, 7, 8, 2, 1_700_000_000_000,
      ])
      expect(readdirSync(root).toSorted()).toEqual(['bin', 'dev', 'large', 'pipe'])
      expect(readdirSync(join(root, 'dev'))).toEqual([])
      expect(lstatSync(join(root, 'pipe')).isFIFO()).toBe(true)
      expect([lstatSync(join(root, 'large')).uid, lstatSync(root).uid, lstatSync(root).mode & 0o7777]).toEqual([
        65_534, 0, 0o755,
      ])
      release()
    })

    it('never writes outside the image: absolute names and links, .. and links in the path', async () => {
      const outside = join(room.dir, 'outside')
      mkdirSync(outside)
      const entries: Entry[] = [
        { name: '/absolute', content: 'a' },
        { name: `../../../../..${outside}/up`, content: 'b' },
        { name: 'link', type: '2', link: outside },
        { name: 'link/through', content: 'c' },
        { name: 'relative', type: '2', link: '../../../../../etc' },
        { name: 'relative/d', content: 'd' },
        { name: 'hard', type: '1', link: '../../absolute' },
      ]
      const { root, release } = await unpacked(archive(...entries))
      expect(readdirSync(outside)).toEqual([])
      expect(readFileSync(join(root, 'absolute'), 'utf8')).toBe('a')
      expect(readdirSync(join(root, outside)).toSorted()).toEqual(['through', 'up'])
      expect(readFileSync(join(root, 'etc/d'), 'utf8')).toBe('d')
      expect(readlinkSync(join(root, 'link'))).toBe(outside)
      expect(readFileSync(join(root, 'hard'), 'utf8')).toBe('a')
      release()
    })

    it('replaces files by directories and directories by files, and keeps the content of directories', async () => {
      const entries: Entry[] = [
        { name: 'a', content: 'file' },
        { name: 'a', type: '5' },
        { name: 'a/b', content: 'in a' },
        { name: 'a', type: '5', mode: 0o700 },
        { name: 'c/d', content: 'in c' },
        { name: 'c', content: 'file' },
      ]
      const { root, release } = await unpacked(gzipSync(archive(...entries)))
      expect(readFileSync(join(root, 'a/b'), 'utf8')).toBe('in a')
      expect(lstatSync(join(root, 'a')).mode & 0o7777).toBe(0o700)
      expect(readFileSync(join(root, 'c'), 'utf8')).toBe('file')
      release()
    })

    it('has any name that a file can have', async () => {
      const names = ['new\nline', ' space ', '-rf', 'ümlaut', '$(touch x)', '*', 'a\\b', 'x'.repeat(100)]
      const { root, release } = await unpacked(archive(...names.map((name) => ({ name, content: name }))))
      expect(readdirSync(root).toSorted()).toEqual(names.toSorted())
      release()
    })

    it('is refused if it is damaged or lies about itself, and nothing of it is left', async () => {
      const good = archive({ name: 'a', content: 'b'.repeat(4000) })
      expect(await refusal(Buffer.from('not an archive'))).toMatch(/cannot be used/)
      expect(await refusal(good.subarray(0, 1500))).toMatch(/cannot be used/)
      expect(await refusal(gzipSync(good).subarray(0, 60))).toMatch(/cannot be used/)
      expect(await refusal(archive({ name: 'a', type: '1', link: 'b' }))).toMatch(/hard link to a missing file/)
      expect(await refusal(archive({ name: 'file', content: 'x' }, { name: 'file/below', content: 'y' }))).toMatch(
        /not a directory/,
      )
      expect(room.images.list().some(({ names }) => names.includes('refused'))).toBe(false)
    })

    it('cannot fill more than the quota, however well it is compressed', async () => {
      const zeros = Buffer.alloc(300 * 1024 * 1024)
      const bomb = gzipSync(archive({ name: 'bomb', content: zeros }), { level: 1 })
      expect(await refusal(bomb)).toContain('exceeds image_size')
    })
  })

  describe('images', () => {
    it('are found by name, by id and after a restart, and removed when nothing uses them', async () => {
      const path = room.file('named.tar', archive({ name: 'x', content: '1' }))
      const first = await imported('named', path)
      expect(room.images.find('named')?.id).toBe(first.id)
      await room.reopen()
      expect(room.images.find(first.id)?.digest).toBe(first.digest)
      const used = await room.images.use(first)
      const second = await imported('named', path)
      expect(room.images.find('named')?.id).toBe(second.id)
      expect(room.images.list().some(({ id }) => id === first.id)).toBe(true)
      used.release()
      await expect.poll(() => room.images.list().some(({ id }) => id === first.id)).toBe(false)
      await room.images.remove('named')
      expect(() => room.images.find('named')).toThrow("The image 'named' does not exist on this server.")
      expect(readdirSync(join(room.dir, 'images/disks/images/local'))).not.toContain(`${second.id}.ext4`)
    })
  })
})
