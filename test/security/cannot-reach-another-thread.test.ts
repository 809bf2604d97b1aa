/** Promise 10: a run reaches no thread but its own. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Machine } from '../../src/engine/machine.ts'
import { createSlot } from '../../src/engine/slots/create-slot.ts'
import type { Slot } from '../../src/engine/slots/slot.ts'
import { Dock } from '../../src/storage/dock.ts'
import { writeFile } from '../../src/storage/files.ts'
import type { Mounted } from '../../src/storage/filesystems.ts'
import { plain } from '../support/attacks.ts'
import { type EngineMachine, engineMachine, installed, start, testLimits } from '../support/engine-machine.ts'
import { inPrivateMounts } from '../support/private-mounts.ts'
import { openRoom, type Room, smallQuota } from '../support/storage-fixture.ts'

const secret = 'the-secret-of-another-thread'

/**
 * Searches for a file by name below some directories, including the root of every process, and for its content on
 * every block device that it finds or can create a node of.
 */
const search = `
import os, stat, sys
name, secret, tops = 'secret.txt', sys.argv[1].encode(), sys.argv[2:]
found = set()
for top in tops:
    for dir, dirs, files in os.walk(top, onerror=lambda _: None):
        if dir.count('/') > 12 or '/proc/' in dir[1:]: dirs.clear()
        for file in files:
            path = os.path.join(dir, file)
            if file == name: found.add('name ' + path)
            try:
                if stat.S_ISBLK(os.stat(path).st_mode): found.add('device ' + path)
            except OSError: pass
numbers = [(7, n) for n in range(64)]
for major, minor in numbers:
    for dir in ('/tmp', '.', '/dev/shm'):
        try:
            path = os.path.join(dir, f'node-{minor}')
            os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(major, minor))
            found.add('made ' + path)
            os.unlink(path)
        except OSError: pass
for path in ('/proc/self/mountinfo', '/proc/mounts', '/proc/1/mountinfo'):
    try:
        if b'dock' in open(path, 'rb').read(): found.add('dock in ' + path)
    except OSError: pass
print('\\n'.join(sorted(found)))
`

inPrivateMounts(import.meta.filename, () => {
  for (const runtime of ['runc', 'crun'] as const) {
    describe.skipIf(!installed(runtime))(`a run in a thread, in a slot of ${runtime}`, () => {
      let machine: EngineMachine
      let host: Machine
      let room: Room
      let slot: Slot
      let mine: Mounted
      let other: Mounted

      beforeAll(async () => {
        machine = engineMachine(runtime)
        host = await machine.open(Dock.open)
        room = await openRoom()
        slot = await createSlot(host)
        slot.bind(testLimits)
        mine = await room.mounted('mine')
        other = await room.mounted('other')
        await writeFile(other.root.fd, 'secret.txt', [Buffer.from(secret)])
      }, 60_000)

      afterAll(async () => {
        await slot.destroy()
        for (const mounted of [mine, other]) await room.filesystems.unmount(mounted)
        await host.close()
        machine.remove()
        await room.remove()
      })

      const attach = (mounted: Mounted, name: string) => {
        if (!(slot.dock instanceof Dock)) throw new Error('the slot has no dock')
        return slot.dock.attach(mounted, { initPid: slot.pid, name, readOnly: false })
      }

      /** The search reads every folder of the image, which takes long on a busy machine. */
      const inside = async (code: string, env: Record<string, string> = {}) =>
        start(slot, 'python', code, { dock: 'home', env, timeoutMs: 170_000 }).ran

      it('finds nothing of another thread, even while both are in the same slot', { timeout: 180_000 }, async () => {
        const without = await plain('python3', '-c', search, secret, other.path)
        expect(without.stdout).toContain(`name ${other.path}/secret.txt`)

        const [home, beside] = [await attach(mine, 'home'), await attach(other, 'beside')]
        const code = `import sys\nsys.argv = ['', '${secret}', '/', *[f'/proc/{p}/root' for p in range(1, 40)]]\n${search}`
        const ran = await inside(code)
        expect(ran).toMatchObject({ stdout: '\n', ending: { kind: 'exited', code: 0 } })
        expect(await home.detach()).toBe(true)
        expect(await beside.detach()).toBe(true)
      })

      it('keeps no access that it created in its own: descriptors, links, processes', async () => {
        const home = await attach(mine, 'home')
        const leave = `
import os, subprocess, time
os.symlink('/dock/beside/secret.txt', 'a'); os.symlink('../../dock', 'b'); os.symlink('/proc/1/root/dock', 'c')
subprocess.Popen(['sleep', '60'], start_new_session=True, cwd='/home/baponi')
`
        expect(await inside(leave)).toMatchObject({ ending: { kind: 'exited', code: 0 } })
        expect(await home.detach()).toBe(true) // No process keeps it open.
        const [again, beside] = [await attach(mine, 'home'), await attach(other, 'beside')]
        const look = `
import os
for path in ['a', 'b/beside/secret.txt', 'c/beside/secret.txt', '/dock', '/proc/1/cwd/dock']:
    try: print(path, open(path).read())
    except OSError as error: print(path, type(error).__name__)
print([os.readlink(f'/proc/{p}/cwd') for p in os.listdir('/proc') if p.isdigit() and int(p) > 2])
`
        const { stdout } = await inside(look)
        expect(stdout).not.toContain(secret)
        expect(stdout.match(/FileNotFoundError|PermissionError/g)).toHaveLength(5)
        expect(await again.detach()).toBe(true)
        expect(await beside.detach()).toBe(true)
      })

      it('sees its own as one mount whose flags it cannot remove, and owns nothing of it on the host', async () => {
        const home = await attach(mine, 'home')
        const { stdout } = await inside('print(open("/proc/self/mountinfo").read())')
        const lines = stdout.split('\n').filter((line) => line.includes('/dev/loop'))
        expect(lines).toHaveLength(1)
        expect(lines[0]).toMatch(/ \/home\/baponi rw,nosuid,nodev,noatime/)
        expect(lines[0]).not.toMatch(/shared:|master:/)
        const attempts = `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
open('tool', 'w').close(); os.chmod('tool', 0o6755)
for flags in (32 | 4096, 32 | 1, 2 | 32 | 1024):
    print(libc.mount(b'none', b'/home/baponi', None, flags, None), os.strerror(ctypes.get_errno()))
print(libc.umount2(b'/home/baponi', 2), os.strerror(ctypes.get_errno()))
`
        const tried = await inside(attempts)
        expect(tried.stdout.trim().split('\n')).toEqual(Array(4).fill('-1 Operation not permitted'))
        expect(await home.detach()).toBe(true)
      })

      it('has the files of its own organization when another has a thread of the same name', async () => {
        const id = { area: 'threads', org: 'org_Other', name: 'mine' } as const
        await room.filesystems.create(id, smallQuota)
        const theirs = await room.filesystems.mount(id)
        await writeFile(theirs.root.fd, 'secret.txt', [Buffer.from(secret)])
        const home = await attach(mine, 'home')
        expect((await inside('import os; print("secret.txt" in os.listdir())')).stdout).toBe('False\n')
        expect(await home.detach()).toBe(true)
        await room.filesystems.unmount(theirs)
        // Two organizations share only the disk that holds the images.
        const images = readdirSync(join(room.home, 'threads', 'org_Test')).map((file) =>
          readFileSync(join(room.home, 'threads', 'org_Test', file)).includes(secret),
        )
        expect(images.filter(Boolean)).toHaveLength(1)
      })
    })
  }
})
