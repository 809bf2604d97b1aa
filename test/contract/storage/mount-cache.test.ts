import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { writeFile } from '../../../src/storage/files.ts'
import type { FilesystemId } from '../../../src/storage/filesystem-id.ts'
import { usageOf } from '../../../src/storage/filesystems.ts'
import { MountCache, type MountCacheSettings } from '../../../src/storage/mount-cache.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { mib, openRoom, type Room, smallQuota, textAt, threadId } from '../../support/storage-fixture.ts'

inPrivateMounts(import.meta.filename, () => {
  let room: Room
  let failures: unknown[]
  let recovered: FilesystemId[]
  beforeEach(async () => {
    room = await openRoom()
    failures = []
    recovered = []
  })
  afterEach(async () => {
    await room.remove()
    expect(failures).toEqual([])
  })

  const warmWith = (settings: Partial<MountCacheSettings>) =>
    new MountCache(
      room.filesystems,
      { mountedMax: 8, idleMs: 60_000, ...settings },
      { failed: (_, error) => failures.push(error), recovered: (id) => recovered.push(id) },
    )
  const mountsHere = () => readdirSync(join(room.dir, 'mounts'))

  describe('mounted filesystems', () => {
    it('are mounted once for all users, and stay for the next', async () => {
      const warm = warmWith({})
      const leases = await Promise.all(Array.from({ length: 20 }, () => warm.acquire(threadId('a'), smallQuota)))
      expect(new Set(leases.map(({ mounted }) => mounted.path)).size).toBe(1)
      for (const lease of leases) lease.release()
      leases[0]?.release()
      expect(warm.size).toEqual({ mounted: 1, used: 0, leaving: 0 })
      const again = await warm.acquire(threadId('a'), undefined)
      expect(again.mounted).toBe(leases[0]?.mounted)
      again.release()
      await warm.close(1_000)
      expect(mountsHere()).toEqual([])
    })

    it('are created for a run also while a reader finds that they do not exist', async () => {
      const warm = warmWith({})
      const [, made] = await Promise.allSettled([
        warm.acquire(threadId('new'), undefined).then((lease) => lease.release()),
        warm.acquire(threadId('new'), smallQuota).then((lease) => lease.release()),
      ])
      expect(made?.status).toBe('fulfilled')
      await warm.close(1_000)
    })

    it('are mounted anew after one that accepts no writes was released', async () => {
      const warm = warmWith({})
      const lease = await warm.acquire(threadId('a'), smallQuota)
      warm.distrust(lease.mounted)
      expect(warm.size.mounted).toBe(1)
      lease.release()
      const again = await warm.acquire(threadId('a'), undefined)
      expect(again.mounted).not.toBe(lease.mounted)
      again.release()
      await warm.close(1_000)
    })

    it('are unmounted when they are idle', async () => {
      const warm = warmWith({ idleMs: 30 })
      ;(await warm.acquire(threadId('a'), smallQuota)).release()
      await expect.poll(() => warm.size).toEqual({ mounted: 0, used: 0, leaving: 0 })
      expect(mountsHere()).toEqual([])
      await warm.close(1_000)
    })

    it('are evicted for others, the least recently used first', async () => {
      const warm = warmWith({ mountedMax: 2 })
      const [a, b] = [await warm.acquire(threadId('a'), smallQuota), await warm.acquire(threadId('b'), smallQuota)]
      await expect(warm.acquire(threadId('c'), smallQuota)).rejects.toMatchObject({ code: 'unavailable' })
      b.release()
      a.release()
      const c = await warm.acquire(threadId('c'), smallQuota)
      expect((await warm.acquire(threadId('a'), undefined)).mounted).toBe(a.mounted) // b was unmounted
      expect(c.mounted.path).not.toBe(b.mounted.path)
      expect(warm.size.mounted).toBe(2)
      await warm.close(10)
      await room.filesystems.unmount(a.mounted)
      await room.filesystems.unmount(c.mounted)
    })

    it('are waited for during an unmount', async () => {
      const warm = warmWith({ mountedMax: 1 })
      for (let round = 0; round < 10; round++)
        for (const name of ['a', 'b']) {
          const lease = await warm.acquire(threadId(name), smallQuota)
          await writeFile(lease.mounted.root.fd, `f${round}`, [])
          lease.release()
        }
      const [a, b] = await Promise.allSettled(['a', 'b'].map((name) => warm.acquire(threadId(name), undefined)))
      expect([a?.status, b?.status].sort()).toEqual(['fulfilled', 'rejected']) // one mount, two users
      if (a?.status === 'fulfilled') a.value.release()
      if (b?.status === 'fulfilled') b.value.release()
      await warm.close(1_000)
    })

    it('are unmounted on request for operations on their image, unless they are used', async () => {
      const warm = warmWith({})
      const lease = await warm.acquire(threadId('a'), smallQuota)
      await expect(warm.evict(threadId('a'))).rejects.toMatchObject({ code: 'thread_busy' })
      lease.release()
      await warm.evict(threadId('a'))
      await room.filesystems.grow(threadId('a'), { bytes: 64 * mib, inodes: 200 })
      await expect(warm.acquire(threadId('none'), undefined)).rejects.toMatchObject({ code: 'thread_unknown' })
      await warm.close(1_000)
    })

    it('can be 200 at once', async () => {
      const warm = warmWith({ mountedMax: 200 })
      const names = Array.from({ length: 200 }, (_, n) => `t${n}`)
      for (let at = 0; at < names.length; at += 10)
        await Promise.all(
          names.slice(at, at + 10).map(async (name) => {
            const { mounted, release } = await warm.acquire(threadId(name), { bytes: 1024 * mib, inodes: 65_536 })
            await writeFile(mounted.root.fd, 'name', [Buffer.from(name)])
            release()
          }),
        )
      expect(warm.size.mounted).toBe(200)
      for (const name of ['t0', 't77', 't199']) {
        const lease = await warm.acquire(threadId(name), undefined)
        expect(await textAt(lease.mounted.root.fd, 'name')).toBe(name)
        lease.release()
      }
      await warm.close(60_000)
      expect([mountsHere(), loopsOf(room.home)]).toEqual([[], []])
    }, 180_000)

    it('grow when they are mounted with a larger quota, and never shrink', async () => {
      const warm = warmWith({})
      const bytesWith = async (bytes: number) => {
        const lease = await warm.acquire(threadId('growing'), { bytes, inodes: 200 })
        const { totalBytes } = await usageOf(lease.mounted)
        lease.release()
        return totalBytes
      }
      const small = await bytesWith(8 * mib)
      expect(await bytesWith(64 * mib)).toBe(small) // It is still mounted.
      await warm.evict(threadId('growing'))
      const large = await bytesWith(64 * mib)
      expect(large).toBeGreaterThan(64 * mib)
      await warm.evict(threadId('growing'))
      expect(await bytesWith(8 * mib)).toBe(large)
      await warm.close(1_000)
    })
  })

  describe('a runner that is killed during a write', () => {
    it('leaves no mount and no loop device, and a thread that has the old file or the new one', async () => {
      for (let round = 0; round < 5; round++) {
        const { child, lines } = dying()
        expect(await lines.next()).toMatchObject({ value: round === 0 ? 'writing' : expect.any(String) })
        await sleep(20 + 37 * round)
        expect(loopsOf(room.home)).toHaveLength(1)
        child.kill('SIGKILL')
        await once(child, 'exit')
        while (loopsOf(room.home).length > 0) await sleep(10)
        expect(readFileSync('/proc/self/mountinfo', 'utf8')).not.toContain(room.dir)
      }
      const mounted = await room.filesystems.mount(threadId('victim'))
      expect(mounted.recovered).toBe(false) // The kernel unmounted it cleanly when its last user was gone.
      expect(await textAt(mounted.root.fd, 'f')).toMatch(/^(a+|b+|c+|d+|e+|f+|g+|h+)$/)
      expect((await textAt(mounted.root.fd, 'f')).length).toBe(600_000)
      expect(readdirSync(mounted.path)).toEqual(['f'])
      await room.filesystems.unmount(mounted)
      execFileSync('e2fsck', ['-fn', room.imagePath('victim')], { stdio: 'pipe' })
    }, 120_000)

    it('leaves no unexpected name in its thread, at any moment of the kill', async () => {
      for (let round = 0; round < 12; round++) {
        const { child, lines } = dying('many')
        await lines.next()
        await sleep(7 * round)
        child.kill('SIGKILL')
        await once(child, 'exit')
        while (loopsOf(room.home).length > 0) await sleep(10)
        const mounted = await room.filesystems.mount(threadId('victim'))
        const found = readdirSync(mounted.path, { recursive: true, encoding: 'utf8' })
        expect(found.filter((path) => !/^place\d+(\/([0-7]|f))?$/.test(path))).toEqual([])
        for (const path of found.filter((path) => path.endsWith('/f')))
          expect(await textAt(mounted.root.fd, path)).toBe(path.slice(0, -2))
        await room.filesystems.unmount(mounted)
      }
    }, 120_000)

    it('leaves a thread that its journal repairs after a power failure', async () => {
      const { child, lines } = dying()
      await lines.next()
      const found: string[] = []
      // What the disk would contain after a power failure now: a copy of the image while in use.
      for (let round = 0; round < 5; round++) {
        await sleep(30)
        child.kill('SIGSTOP') // So that the copy is of one moment.
        await sleep(30)
        execFileSync('cp', ['--sparse=always', room.imagePath('victim'), room.imagePath(`cut${round}`)])
        child.kill('SIGCONT')
      }
      child.kill('SIGKILL')
      await once(child, 'exit')
      for (let round = 0; round < 5; round++) {
        const mounted = await room.filesystems.mount(threadId(`cut${round}`))
        expect(mounted.recovered).toBe(true)
        found.push(await textAt(mounted.root.fd, 'f').catch((error) => error.code))
        await room.filesystems.unmount(mounted)
        execFileSync('e2fsck', ['-fn', room.imagePath(`cut${round}`)], { stdio: 'pipe' })
      }
      expect(found).toHaveLength(5)
    }, 120_000)
  })

  /** In a mount namespace of its own, so that its mounts stay private. */
  function dying(how: 'one' | 'many' = 'one'): { child: ChildProcess; lines: AsyncIterator<string> } {
    const program = [
      process.execPath,
      join(import.meta.dirname, '../../support/storage-dying.ts'),
      room.home,
      join(room.dir, 'its'),
      how,
    ]
    const child = spawn('unshare', ['--mount', '--propagation', 'private', '--', ...program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    return { child, lines: createInterface(child.stdout!)[Symbol.asyncIterator]() }
  }

  function loopsOf(home: string): string[] {
    return readdirSync('/sys/block')
      .filter((name) => name.startsWith('loop'))
      .filter((name) => backingFile(name).startsWith(home))
  }

  function backingFile(loop: string): string {
    try {
      return readFileSync(`/sys/block/${loop}/loop/backing_file`, 'utf8')
    } catch {
      return ''
    }
  }
})
