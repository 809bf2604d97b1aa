import { execFileSync } from 'node:child_process'
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { makeDirectory, writeFile } from '../../../src/storage/files.ts'
import { Filesystems, usageOf } from '../../../src/storage/filesystems.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { mib, openRoom, type Room, smallQuota, textAt, threadId, zeros } from '../../support/storage-fixture.ts'

/** Whether this process has a file open. */
const isOpen = (path: string): boolean =>
  readdirSync('/proc/self/fd').some((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`) === path
    } catch {
      return false // The descriptor of the listing itself.
    }
  })

inPrivateMounts(import.meta.filename, () => {
  let room: Room
  beforeEach(async () => {
    room = await openRoom()
  })
  afterEach(() => room.remove())

  const isSound = (name: string) => execFileSync('e2fsck', ['-fn', room.imagePath(name)], { stdio: 'pipe' })

  describe('the filesystem of a thread', () => {
    it('keeps files from one mount to the next', async () => {
      const first = await room.mounted('kept')
      await writeFile(first.root.fd, 'notes/today.txt', [Buffer.from('remember')])
      expect(await room.filesystems.unmount(first)).toBe(true)
      const second = await room.mounted('kept')
      expect(await textAt(second.root.fd, 'notes/today.txt')).toBe('remember')
      expect(second.recovered).toBe(false)
      await room.filesystems.unmount(second)
      isSound('kept')
    })

    it('is made from a copy in waiting, which is whole and used once', async () => {
      const incoming = join(room.home, 'incoming')
      await room.filesystems.create(threadId('first'), smallQuota)
      await expect.poll(() => readdirSync(incoming).length, { timeout: 5_000 }).toBe(1)
      const [spare = ''] = readdirSync(incoming)
      // It is there before its content is.
      await expect.poll(() => isOpen(join(incoming, spare)), { timeout: 20_000 }).toBe(false)
      await sleep(100)
      const { ino } = statSync(join(incoming, spare))
      await Promise.all(['second', 'third'].map((name) => room.filesystems.create(threadId(name), smallQuota)))
      const inodes = ['first', 'second', 'third'].map((name) => statSync(room.imagePath(name)).ino)
      expect(new Set(inodes).size).toBe(3)
      expect(inodes).toContain(ino)
      for (const name of ['second', 'third']) {
        const mounted = await room.mounted(name)
        await writeFile(mounted.root.fd, 'name', [Buffer.from(name)])
        await room.filesystems.unmount(mounted)
        isSound(name)
      }
      await expect.poll(() => readdirSync(incoming).filter((name) => name !== spare).length).toBeLessThanOrEqual(1)
      expect(existsSync(join(incoming, spare))).toBe(false)
    })

    it('is mounted nosuid, nodev and noatime, and belongs to the user of jails', async () => {
      const mounted = await room.mounted('flags')
      const line = readFileSync('/proc/self/mountinfo', 'utf8')
        .split('\n')
        .find((l) => l.includes(` ${mounted.path} `))
      expect(line).toMatch(/ rw,nosuid,nodev,noatime - ext4 /)
      const device = line?.match(/loop\d+/)?.[0]
      expect(readFileSync(`/proc/fs/ext4/${device}/options`, 'utf8')).toMatch(/^errors=remount-ro$/m)
      expect(statSync(mounted.path)).toMatchObject({ uid: 1000, gid: 1000 })
      expect(readdirSync(mounted.path)).toEqual([])
      await room.filesystems.unmount(mounted)
    })

    it('provides the quota of bytes, hardly more, and then reports that it is full', async () => {
      const quota = { bytes: 32 * mib, inodes: 100 }
      const mounted = await room.mounted('full', quota)
      const { freeBytes } = await usageOf(mounted)
      expect(freeBytes).toBeGreaterThanOrEqual(quota.bytes)
      expect(freeBytes).toBeLessThan(quota.bytes * 1.01 + mib)
      await expect(writeFile(mounted.root.fd, 'big', zeros(quota.bytes + 2 * mib))).rejects.toMatchObject({
        code: 'storage_full',
      })
      expect((await usageOf(mounted)).freeBytes).toBeGreaterThanOrEqual(quota.bytes)
      await writeFile(mounted.root.fd, 'fits', zeros(quota.bytes - mib))
      await room.filesystems.unmount(mounted)
    })

    it('provides the quota of files, and then reports that it is full', async () => {
      const mounted = await room.mounted('many', { bytes: 8 * mib, inodes: 64 })
      let made = 0
      const makeAll = async () => {
        for (; made < 1_000; made++) await makeDirectory(mounted.root.fd, `d${made}`)
      }
      await expect(makeAll()).rejects.toMatchObject({ code: 'storage_full' })
      expect(made).toBeGreaterThanOrEqual(64)
      expect(made).toBeLessThan(64 + 32)
      await room.filesystems.unmount(mounted)
    })

    it('uses little disk space while it contains little, and releases what was deleted', async () => {
      const quota = { bytes: 1024 * mib, inodes: 65_536 }
      const mounted = await room.mounted('sparse', quota)
      const allocated = async () => (await room.filesystems.allocatedBytes(threadId('sparse'))) ?? 0
      expect(await allocated()).toBeLessThan(160 * 1024)
      await writeFile(mounted.root.fd, 'big', zeros(20 * mib))
      expect(await allocated()).toBeGreaterThan(20 * mib)
      await writeFile(mounted.root.fd, 'big', [])
      await room.filesystems.unmount(mounted)
      expect(await allocated()).toBeLessThan(400 * 1024)
      isSound('sparse')
    })

    it('is created once, however many request it at the same time', async () => {
      const made = await Promise.all(
        Array.from({ length: 50 }, () => room.filesystems.create(threadId('one'), smallQuota)),
      )
      expect(made.filter(Boolean)).toHaveLength(1)
      expect(readdirSync(join(room.home, 'incoming'))).toEqual([])
    })

    it('distinguishes names by case, and rejects invalid names', async () => {
      await room.filesystems.create(threadId('Case'), smallQuota)
      await room.filesystems.create(threadId('case'), smallQuota)
      expect((await room.filesystems.names('threads', 'org_Test')).sort()).toEqual(['Case', 'case'])
      for (const name of ['', '.', '..', '.hidden', 'a/b', '../up', 'a\0b', 'x'.repeat(129)]) {
        const refused = { code: 'invalid_argument' }
        await expect(room.filesystems.create(threadId(name), smallQuota)).rejects.toMatchObject(refused)
        await expect(room.filesystems.create({ ...threadId('ok'), org: name }, smallQuota)).rejects.toMatchObject(
          refused,
        )
      }
    })

    it('is never mounted twice', async () => {
      const mounted = await room.mounted('single')
      const other = await Filesystems.open({
        home: room.home,
        mountsDir: join(room.dir, 'other'),
        reserveBytes: 0,
        lockPatienceMs: 100,
      })
      await expect(other.mount(threadId('single'))).rejects.toMatchObject({ code: 'thread_busy' })
      await expect(other.remove(threadId('single'))).rejects.toMatchObject({ code: 'thread_busy' })
      await expect(other.fork(threadId('single'), threadId('twin'))).rejects.toMatchObject({ code: 'thread_busy' })
      await room.filesystems.unmount(mounted)
      await other.unmount(await other.mount(threadId('single')))
    }, 120_000)

    it('is mounted without the reserved names that a crash left, and with everything else', async () => {
      const before = await room.mounted('a')
      const put = (path: string) => writeFileSync(join(before.path, path), 'text')
      for (const name of ['.glovebox-0', '.glovebox-31', '.glovebox-32', '.glovebox', '.glovebox-main.js', 'f'])
        put(name)
      symlinkSync('f', join(before.path, '.glovebox-1'))
      mkdirSync(join(before.path, '.glovebox-2'))
      mkdirSync(join(before.path, '.glovebox-3'))
      put('.glovebox-3/kept')
      mkdirSync(join(before.path, 'd'))
      put('d/.glovebox-0')
      await room.filesystems.unmount(before)
      const after = await room.filesystems.mount(threadId('a'))
      expect(readdirSync(after.path).sort()).toEqual(['.glovebox', '.glovebox-3', '.glovebox-32', 'd', 'f'])
      expect([readdirSync(join(after.path, 'd')), await textAt(after.root.fd, 'f')]).toEqual([['.glovebox-0'], 'text'])
      await room.filesystems.unmount(after)
    })

    it('grows, with its content', async () => {
      const small = await room.mounted('grown')
      await writeFile(small.root.fd, 'f', [Buffer.from('still here')])
      const before = await usageOf(small)
      await room.filesystems.unmount(small)
      await room.filesystems.grow(threadId('grown'), { bytes: 4096 * mib, inodes: 200 })
      const large = await room.mounted('grown')
      const after = await usageOf(large)
      expect(after.freeBytes).toBeGreaterThanOrEqual(4095 * mib)
      expect(after.totalInodes).toBeGreaterThan(before.totalInodes)
      expect(await textAt(large.root.fd, 'f')).toBe('still here')
      await room.filesystems.unmount(large)
      isSound('grown')
      await expect(room.filesystems.grow(threadId('grown'), smallQuota)).rejects.toMatchObject({
        code: 'invalid_argument',
      })
    })

    it('is forked into an independent copy', async () => {
      const mounted = await room.mounted('origin')
      await writeFile(mounted.root.fd, 'f', [Buffer.from('origin')])
      await room.filesystems.unmount(mounted)
      expect(await room.filesystems.fork(threadId('origin'), threadId('copy'))).toBe(true)
      expect(await room.filesystems.fork(threadId('origin'), threadId('copy'))).toBe(false)
      const copy = await room.mounted('copy')
      await writeFile(copy.root.fd, 'f', [Buffer.from('copy')])
      const origin = await room.mounted('origin')
      expect([await textAt(origin.root.fd, 'f'), await textAt(copy.root.fd, 'f')]).toEqual(['origin', 'copy'])
      await room.filesystems.unmount(copy)
      await room.filesystems.unmount(origin)
      isSound('copy')
    })

    it('is gone when it is removed', async () => {
      await room.filesystems.create(threadId('gone'), smallQuota)
      await room.filesystems.remove(threadId('gone'))
      expect(existsSync(room.imagePath('gone'))).toBe(false)
      await expect(room.filesystems.mount(threadId('gone'))).rejects.toMatchObject({ code: 'thread_unknown' })
    })

    it('is checked and repaired before it is mounted when an error was recorded', async () => {
      const mounted = await room.mounted('hurt')
      await writeFile(mounted.root.fd, 'f', [Buffer.from('text')])
      await room.filesystems.unmount(mounted)
      const image = room.imagePath('hurt')
      // A used block marked free, and the flag that the kernel sets when it finds damage.
      for (const change of ['freeb 1 1', 'set_super_value state 3'])
        execFileSync('debugfs', ['-w', '-R', change, image], { stdio: 'pipe' })
      expect(() => isSound('hurt')).toThrow()
      const again = await room.filesystems.mount(threadId('hurt'))
      expect(again.recovered).toBe(true)
      expect(await textAt(again.root.fd, 'f')).toBe('text')
      await room.filesystems.unmount(again)
      isSound('hurt')
    })

    it('is recovered from a backup superblock, and rejected if no superblock is valid', async () => {
      for (const [name, bytes] of [
        ['large', 1024 * mib],
        ['small', 8 * mib],
      ] as const) {
        const mounted = await room.mounted(name, { bytes, inodes: 200 })
        await writeFile(mounted.root.fd, 'f', [Buffer.from('text')])
        await room.filesystems.unmount(mounted)
        overwrite(room.imagePath(name), 1024, Buffer.alloc(1024))
      }
      const found = await room.filesystems.mount(threadId('large'))
      expect(await textAt(found.root.fd, 'f')).toBe('text')
      await room.filesystems.unmount(found)
      await expect(room.filesystems.mount(threadId('small'))).rejects.toThrow('beyond repair')
      expect(readdirSync(join(room.dir, 'mounts'))).toEqual([])
    })

    it('keeps its content when others fill the disk below it, and continues when there is space again', async () => {
      const disk = join(room.dir, 'disk')
      const make = 'truncate -s 64M "$0.img" && mkfs.ext4 -q -F "$0.img" && mkdir "$0" && mount -o loop "$0.img" "$0"'
      execFileSync('sh', ['-c', make, disk])
      const settings = { mountsDir: join(room.dir, 'mounts-on-disk'), reserveBytes: 0, lockPatienceMs: 5_000 }
      const filesystems = await Filesystems.open({ home: join(disk, 'home'), ...settings })
      const [filler, victim] = [threadId('filler'), threadId('victim')]
      for (const id of [filler, victim]) await filesystems.create(id, { bytes: 256 * mib, inodes: 200 })
      const [full, other] = [await filesystems.mount(filler), await filesystems.mount(victim)]
      await writeFile(other.root.fd, 'early', [Buffer.from('kept')])
      const refused = { code: 'storage_full' }
      await expect(writeFile(full.root.fd, 'big', zeros(200 * mib))).rejects.toMatchObject(refused)
      await expect(writeFile(other.root.fd, 'late', zeros(mib))).rejects.toMatchObject(refused)
      expect(await textAt(other.root.fd, 'early')).toBe('kept')
      for (const mounted of [full, other]) expect(await filesystems.unmount(mounted)).toBe(true)

      await filesystems.remove(filler)
      const again = await filesystems.mount(victim)
      expect([readdirSync(again.path), await textAt(again.root.fd, 'early')]).toEqual([['early'], 'kept'])
      expect(await writeFile(again.root.fd, 'late', zeros(mib))).toBe(mib)
      await filesystems.unmount(again)
      expect(() => execFileSync('e2fsck', ['-fn', join(disk, 'home/threads/org_Test/victim.ext4')])).not.toThrow()
      execFileSync('umount', [disk])
    })

    it('is not created on a disk that is nearly full', async () => {
      const tight = await openRoom(Number.MAX_SAFE_INTEGER)
      await expect(tight.filesystems.create(threadId('a'), smallQuota)).rejects.toMatchObject({
        code: 'disk_unavailable',
      })
      tight.remove()
    })
  })

  function overwrite(path: string, position: number, bytes: Buffer): void {
    const fd = openSync(path, 'r+')
    writeSync(fd, bytes, 0, bytes.length, position)
    closeSync(fd)
  }
})
