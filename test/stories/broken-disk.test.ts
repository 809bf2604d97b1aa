import { execFileSync } from 'node:child_process'
import { closeSync, mkdirSync, openSync, readdirSync, rmSync, statfsSync, writeFileSync, writeSync } from 'node:fs'
import { basename, join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { execute, post } from '../support/calls.ts'
import { builtProgram, type Glovebox, Place, until } from '../support/glovebox.ts'
import { manageKeys, runCommand } from '../support/keys.ts'
import { LoopDisk } from '../support/loop-disk.ts'
import { inPrivateMounts } from '../support/private-mounts.ts'

const mib = 1024 * 1024

inPrivateMounts(import.meta.filename, () => {
  let place: Place
  let disk: LoopDisk

  /** A server whose home is on a small disk of its own. */
  async function openOn(bytes: number, ...options: string[]): Promise<Glovebox> {
    place = new Place(builtProgram)
    disk = new LoopDisk(place, bytes, ...options)
    return start()
  }
  const flags = ['--storage', 'none', '--slots-ready', '0']
  const start = () => place.start(...flags)

  afterEach(async () => {
    await place.lastServer?.end()
    await disk.unmount()
    disk.remove()
    await place.remove()
  }, 60_000)

  const run = (at: Glovebox) =>
    post<{ error: string; message: string }>(`${at.url}/v1/sandbox/execute`, { language: 'bash', code: 'echo here' })
  const readiness = async (at: Glovebox) => {
    const response = await fetch(`${at.url}/readyz`)
    const { reason } = (await response.json()) as { reason?: string }
    return { status: response.status, reason }
  }
  const failures = (at: Glovebox) => at.log.filter(({ msg }) => msg === 'the database cannot be written')

  /** Calls are refused with the cause, `/readyz` states it, a command states it, and the log has its first occurrence. */
  async function isReported(at: Glovebox, problem: RegExp): Promise<void> {
    await until(async () => (await run(at)).status !== 200, 'a write fails')
    const { status, body } = await run(at)
    expect({ status, ...body }).toMatchObject({ status: 503, error: 'unavailable' })
    expect(body.message).toMatch(problem)
    expect(await readiness(at)).toMatchObject({ status: 503, reason: expect.stringMatching(problem) })
    const command = await manageKeys(place, ['create'])
    expect({ code: command.code, stdout: command.stdout }).toEqual({ code: 74, stdout: '' })
    expect(command.stderr).toMatch(problem)
    expect(command.stderr).not.toMatch(/^ +at /m)
    expect(failures(at)).toMatchObject([{ problem: expect.stringMatching(problem) }])
  }

  async function isRefusedAtStart(problem: RegExp): Promise<void> {
    const refused = place.launch('--port', '0', ...flags)
    expect(await refused.exited).toEqual({ code: 74, signal: null })
    expect(refused.complaint).toMatch(problem)
    expect(refused.complaint).not.toMatch(/^ +at /m)
  }

  /** @returns the file that fills the disk to its last block. */
  function fill(): string {
    const path = join(disk.home, 'ballast')
    const { bavail, bsize } = statfsSync(disk.home)
    execFileSync('fallocate', ['-l', `${bavail * bsize - mib}`, path])
    const file = openSync(path, 'a')
    expect(() => {
      for (;;) writeSync(file, Buffer.alloc(4096, 1))
    }).toThrow(/ENOSPC/)
    closeSync(file)
    return path
  }

  describe('a full disk', () => {
    it('is reported as the cause everywhere, and the server works again when there is room', async () => {
      const full = await openOn(64 * mib)
      const pids = [full.frontPid, full.runnerPid]
      const ballast = fill()
      await isReported(full, /no space or no inodes are left/)
      const out = join(disk.home, 'out')
      expect(await runCommand(place, ['config', 'show'], ['sh', '-c', `"$@" >${out}`, 'sh'])).toMatchObject({
        code: 74,
        stderr: expect.stringMatching(/the output cannot be written: ENOSPC/),
      })
      rmSync(ballast)
      await until(async () => (await full.readiness()) === 200, 'the server is ready again')
      expect(await execute(full.url, 'bash', 'echo here')).toMatchObject({ stdout: 'here\n' })
      expect([full.frontPid, full.runnerPid]).toEqual(pids)
      expect(full.log).toContainEqual(expect.objectContaining({ msg: 'the database can be written again' }))
    }, 120_000)
  })

  describe('a disk on which no thread can be created any more', () => {
    it('makes the server not ready, with the reason, while runs without a thread continue', async () => {
      place = new Place(builtProgram)
      disk = new LoopDisk(place, 256 * mib)
      const server = await place.start('--slots-ready', '0', '--storage-reserve', '64MiB', '--limit-thread', '16MiB')
      const ballast = join(disk.home, 'ballast')
      const { bavail, bsize } = statfsSync(disk.home)
      execFileSync('fallocate', ['-l', `${bavail * bsize - 24 * mib}`, ballast])
      await until(async () => (await readiness(server)).status === 503, 'the server is not ready')
      expect((await readiness(server)).reason).toBe('the disk of threads is nearly full')
      expect(await execute(server.url, 'bash', 'echo here')).toMatchObject({ stdout: 'here\n' })
      rmSync(ballast)
      await until(async () => (await readiness(server)).status === 200, 'the server is ready again')
    }, 120_000)
  })

  describe('a machine without a free loop device', () => {
    it('makes the server not ready, with the reason, until there is one', async () => {
      place = new Place(builtProgram)
      disk = new LoopDisk(place, 256 * mib)
      const server = await place.start('--slots-ready', '0', '--storage-reserve', '64MiB', '--limit-thread', '16MiB')
      const inRunner = (...words: string[]) => execFileSync('nsenter', ['-t', `${server.runnerPid}`, '-m', ...words])
      inRunner('mount', '--bind', '/dev/null', '/dev/loop-control')
      await until(async () => (await readiness(server)).status === 503, 'the server is not ready')
      expect((await readiness(server)).reason).toMatch(/^no loop device is free for the filesystem of a thread \(.+\)$/)
      expect(await execute(server.url, 'bash', 'echo here')).toMatchObject({ stdout: 'here\n' })
      inRunner('umount', '/dev/loop-control')
      await until(async () => (await readiness(server)).status === 200, 'the server is ready again')
    }, 120_000)
  })

  describe('a disk without free inodes', () => {
    const useAll = (many: string) => {
      mkdirSync(many)
      expect(() => {
        for (let n = 0; ; n++) writeFileSync(join(many, `${n}`), '')
      }).toThrow(/ENOSPC/)
    }

    it('makes a server that serves not ready, with the reason, until there are some', async () => {
      const server = await openOn(64 * mib, '-N', '128')
      const many = join(disk.home, 'many')
      useAll(many)
      await until(async () => (await readiness(server)).status === 503, 'the server is not ready')
      expect((await readiness(server)).reason).toMatch(/no space or no inodes are left/)
      rmSync(many, { recursive: true })
      await until(async () => (await readiness(server)).status === 200, 'the server is ready again')
      expect(await execute(server.url, 'bash', 'echo here')).toMatchObject({ stdout: 'here\n' })
    }, 120_000)

    it('is reported at the start, which succeeds when there are some', async () => {
      const first = await openOn(64 * mib, '-N', '128')
      expect(await first.stop()).toEqual({ code: 0, signal: null })
      const many = join(disk.home, 'many')
      useAll(many)
      await isRefusedAtStart(/no space or no inodes are left/)
      for (const name of readdirSync(many)) rmSync(join(many, name))
      const next = await start()
      expect(await execute(next.url, 'bash', 'echo here')).toMatchObject({ stdout: 'here\n' })
    }, 120_000)
  })

  describe('a disk that the kernel makes read-only after an error', () => {
    it('is reported as the cause, also by the next start', async () => {
      const failing = await openOn(64 * mib, '-O', '^has_journal', '-e', 'remount-ro')
      const device = basename(execFileSync('findmnt', ['-no', 'SOURCE', disk.home], { encoding: 'utf8' }).trim())
      writeFileSync(`/sys/fs/ext4/${device}/trigger_fs_error`, '1')
      await isReported(failing, /its filesystem is read-only/)
      await failing.stop()
      await isRefusedAtStart(/its filesystem is read-only/)
    }, 120_000)
  })

  describe('a disk that fails', () => {
    it('is reported as the cause, also by the next start, and a repaired one works again', async () => {
      const failing = await openOn(64 * mib)
      expect(await execute(failing.url, 'bash', 'echo here')).toMatchObject({ stdout: 'here\n' })
      disk.break()
      await isReported(failing, /its disk reports input\/output errors/)
      await failing.stop()
      await isRefusedAtStart(/its disk reports input\/output errors/)
      await disk.unmount()
      disk.mount()
      const next = await start()
      expect(await execute(next.url, 'bash', 'echo here')).toMatchObject({ stdout: 'here\n' })
    }, 120_000)
  })
})
