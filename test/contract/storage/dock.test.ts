import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { StartRefused } from '../../../src/base/errors.ts'
import { Dock } from '../../../src/storage/dock.ts'
import { writeFile } from '../../../src/storage/files.ts'
import type { Mounted } from '../../../src/storage/filesystems.ts'
import { probeStorage } from '../../../src/storage/probe.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { openRoom, type Room, textAt } from '../../support/storage-fixture.ts'

inPrivateMounts(import.meta.filename, () => {
  let room: Room
  let mounted: Mounted
  let dock: Dock
  let slot: ChildProcess
  beforeEach(async () => {
    room = await openRoom()
    execFileSync('chmod', ['711', room.dir])
    mounted = await room.mounted('home')
    dock = await Dock.open(join(room.dir, 'dock'))
    slot = await startSlot()
  })
  afterEach(async () => {
    slot.kill('SIGKILL')
    if (slot.exitCode === null && slot.signalCode === null) await once(slot, 'exit')
    await dock.release()
    await room.filesystems.unmount(mounted)
    await room.remove()
  })

  /** Namespaces like those of a slot: a user namespace with its own ids, a mount namespace that receives mounts of the dock. */
  async function startSlot(): Promise<ChildProcess> {
    const child = spawn('unshare', ['--user', '--mount', '--propagation', 'slave', '--', 'cat'], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    child.stdin?.write('.')
    await once(child.stdout!, 'data')
    for (const map of ['uid_map', 'gid_map']) writeFileSync(`/proc/${child.pid}/${map}`, '0 1000000 65536\n')
    return child
  }

  const options = (readOnly = false) => ({ initPid: slot.pid ?? 0, name: 'home', readOnly })

  /** Runs a command inside as root of the slot, or as the user of its jails. @returns its output, or its error. */
  function inside(command: string, uid = 0): string {
    const ids = uid === 0 ? [] : [`--setuid=${uid}`, `--setgid=${uid}`]
    const words = ['-t', String(slot.pid), '--user', '--mount', ...ids, '--', 'sh', '-c', command]
    try {
      return execFileSync('nsenter', words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], cwd: '/' }).trim()
    } catch (error) {
      return (error as { stderr: string }).stderr.trim()
    }
  }

  const mountsAt = (dir: string): (string | undefined)[] =>
    readFileSync('/proc/self/mountinfo', 'utf8')
      .split('\n')
      .map((line) => line.split(' ')[4])
      .filter((point) => point?.startsWith(dir))

  describe('a filesystem in a dock', () => {
    it('appears in the slot with its ids mapped, in both directions', async () => {
      await writeFile(mounted.root.fd, 'from-outside', [Buffer.from('hello')])
      const home = join(dock.dir, 'home')
      expect(inside(`ls ${dock.dir}`)).toBe('')
      const attachment = await dock.attach(mounted, options())
      expect(inside(`cat ${home}/from-outside; stat -c %u:%g ${home} ${home}/from-outside`)).toBe(
        'hello1000:1000\n1000:1000',
      )
      expect(inside(`echo back >${home}/from-inside && echo done`, 1000)).toBe('done')
      expect(await textAt(mounted.root.fd, 'from-inside')).toBe('back\n')
      expect(statSync(join(mounted.path, 'from-inside')).uid).toBe(1000)
      expect(await attachment.detach()).toBe(true)
      expect(inside(`ls ${home}`)).toBe('')
      expect(readdirSync(home)).toEqual([]) // The mount point stays for the next one.
    })

    it('reports to a program inside that it is full: of bytes, and of files', async () => {
      const attachment = await dock.attach(mounted, options())
      const home = join(dock.dir, 'home')
      expect(inside(`head -c 20000000 /dev/zero >${home}/big`, 1000)).toMatch(/No space left on device/)
      expect(inside(`rm ${home}/big; echo freed`, 1000)).toBe('freed')
      expect(inside(`cd ${home} && seq 1000 | xargs touch`, 1000)).toMatch(/No space left on device/)
      expect(inside(`cd ${home} && seq 1000 | xargs rm -f && touch again && ls`, 1000)).toBe('again')
      expect(await attachment.detach()).toBe(true)
    })

    it('has flags that root inside cannot remove', async () => {
      const attachment = await dock.attach(mounted, options(true))
      const home = join(dock.dir, 'home')
      expect(inside(`grep " ${home} " /proc/self/mountinfo`)).toMatch(/ro,nosuid,nodev,noatime,idmapped /)
      for (const flag of ['rw', 'suid', 'dev'])
        expect(inside(`mount -o remount,bind,${flag} ${home} && echo taken back`)).toMatch(
          /permission denied|superuser/,
        )
      expect(inside(`echo x >${home}/f && echo written`, 1000)).toMatch(/Read-only/)
      expect(await attachment.detach()).toBe(true)
    })

    it('is detached from a process that keeps it open, and reports that', async () => {
      const attachment = await dock.attach(mounted, options())
      const words = [
        '-t',
        String(slot.pid),
        '--user',
        '--mount',
        '--',
        'sh',
        '-c',
        `cd ${dock.dir}/home && echo in && exec cat`,
      ]
      const holder = spawn('nsenter', words, { stdio: ['pipe', 'pipe', 'inherit'] })
      await once(holder.stdout, 'data')
      expect(await attachment.detach()).toBe(false)
      expect(inside(`ls ${dock.dir}/home`)).toBe('')
      holder.stdin.end()
      await once(holder, 'exit')
    })

    it('leaves nothing behind when it cannot be attached', async () => {
      await expect(dock.attach(mounted, { ...options(), initPid: process.pid })).rejects.toMatchObject({
        code: 'EPERM',
      })
      await expect(dock.attach(mounted, { ...options(), initPid: 2 ** 22 + 1 })).rejects.toMatchObject({
        code: 'ENOENT',
      })
      await expect(dock.attach(mounted, { ...options(), name: '../up' })).rejects.toThrow('no name')
      expect(mountsAt(dock.dir)).toEqual([dock.dir])
      expect(existsSync(join(room.dir, 'up'))).toBe(false)
    })

    it('is unmounted with the dock', async () => {
      const second = await Dock.open(join(room.dir, 'second'))
      await second.attach(mounted, options())
      await second.release()
      expect(existsSync(second.dir)).toBe(false)
      expect(readFileSync('/proc/self/mountinfo', 'utf8')).not.toContain(second.dir)
    })
  })

  describe('the storage probe', () => {
    it('passes on this host and leaves nothing behind', async () => {
      const dir = mkdtempSync(join(tmpdir(), 'glovebox-probe-'))
      await probeStorage(dir)
      expect(readdirSync(dir)).toEqual([])
      rmSync(dir, { recursive: true })
    })

    it('stops the start, with the remedy, when mounting is not allowed', () => {
      const probe = join(import.meta.dirname, '../../../src/storage/probe.ts')
      const script = `
        import { mkdtempSync } from 'node:fs'
        const { probeStorage } = await import(${JSON.stringify(probe)})
        await probeStorage(mkdtempSync(${JSON.stringify(join(room.dir, 'p-'))})).catch((e) => console.log(e.name, '|', e.message, '|', e.remedy))`
      const words = [
        '--bounding-set=-sys_admin',
        '--inh-caps=-sys_admin',
        process.execPath,
        '--input-type=module',
        '-e',
        script,
      ]
      expect(execFileSync('setpriv', words, { encoding: 'utf8' })).toMatch(
        new RegExp(`^${StartRefused.name} \\| Storage cannot be set up here: .* \\| .*(root|Linux|/dev/loop)`),
      )
    })
  })
})
