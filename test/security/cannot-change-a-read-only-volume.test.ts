/** Promise 13: a run cannot change a volume that is read-only for it. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Machine } from '../../src/engine/machine.ts'
import { createSlot } from '../../src/engine/slots/create-slot.ts'
import type { Slot } from '../../src/engine/slots/slot.ts'
import { Dock } from '../../src/storage/dock.ts'
import type { Mounted } from '../../src/storage/filesystems.ts'
import { type EngineMachine, engineMachine, installed, prewarm, start, testLimits } from '../support/engine-machine.ts'
import { inPrivateMounts } from '../support/private-mounts.ts'
import { openRoom, type Room, smallQuota } from '../support/storage-fixture.ts'

/** Tries every way to change a file or its mount; prints which were possible, and undoes them. */
const attack = `
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
root = '/volumes/shelf'
def tried(name, work):
    try: work()
    except OSError as error: print(name, errno.errorcode[error.errno])
    else: print(name, 'DONE')
def call(name, *words):
    if libc.__getattr__(name)(*words) != 0: raise OSError(ctypes.get_errno(), name)
os.chdir(root)
before = os.stat('f')
tried('write', lambda: open('f', 'a'))
tried('create', lambda: open('g', 'w').close() or os.unlink('g'))
tried('chmod', lambda: os.chmod('f', 0o777))
tried('utime', lambda: os.utime('f'))
tried('rename', lambda: os.rename('f', 'h') or os.rename('h', 'f'))
tried('link', lambda: os.link('f', 'h') or os.unlink('h'))
tried('mkdir', lambda: os.mkdir('e') or os.rmdir('e'))
tried('xattr', lambda: os.setxattr('f', 'user.a', b'b'))
tried('truncate', lambda: os.truncate('f', 1))
tried('fifo', lambda: os.mkfifo('p') or os.unlink('p'))
fd = os.open('f', os.O_RDONLY); os.read(fd, 1)
tried('reopen', lambda: os.open('/proc/self/fd/%d' % fd, os.O_WRONLY))
tried('remount', lambda: call('mount', None, root.encode(), None, 32 | 4096, None))
tried('unmount', lambda: call('umount2', root.encode(), 2))
tried('shelf', lambda: os.mkdir('/volumes/x'))
after = os.stat('f')
print('atime', 'DONE' if before.st_atime != after.st_atime else 'same')
print('ctime', 'DONE' if before.st_ctime != after.st_ctime else 'same')
`

const done = (text: string): string[] =>
  text.split('\n').flatMap((line) => (line.endsWith(' DONE') ? [line.split(' ')[0]!] : []))

inPrivateMounts(import.meta.filename, () => {
  for (const runtime of ['runc', 'crun'] as const) {
    describe.skipIf(!installed(runtime))(`a volume in slots of ${runtime}`, () => {
      let machine: EngineMachine
      let host: Machine
      let room: Room
      let reader: Slot
      let writer: Slot
      let volume: Mounted

      beforeAll(async () => {
        machine = engineMachine(runtime)
        host = await machine.open(Dock.open)
        room = await openRoom()
        reader = await createSlot(host)
        writer = await createSlot(host)
        for (const slot of [reader, writer]) slot.bind(testLimits)
        volume = await room.mounted('volume', smallQuota)
      }, 60_000)

      afterAll(async () => {
        for (const slot of [reader, writer]) await slot.destroy()
        expect(await room.filesystems.unmount(volume)).toBe(true)
        await host.close()
        expect(machine.leftovers()).toEqual([])
        machine.remove()
        await room.remove()
      })

      /** With the volume on the shelf; in a prewarmed python when `waited`. */
      async function inside(slot: Slot, readOnly: boolean, code: string, waited: boolean) {
        if (!(slot.dock instanceof Dock)) throw new Error('the slot has no dock')
        if (waited) await prewarm(slot, 'python')
        const parts = [{ name: 'shelf', mounted: volume, readOnly }]
        const attachment = await slot.dock.attachVolumes('volumes', slot.pid, parts)
        const { ran } = start(slot, 'python', code, { volumes: attachment.name })
        return { ran, detach: () => attachment.detach() }
      }

      for (const waited of [false, true]) {
        it(`gives a run that may only read ${waited ? 'from a prewarmed jail ' : ''}no way to change it, beside one that may write`, async () => {
          const open = await inside(writer, false, `open('/volumes/shelf/f', 'w').write('text')\n${attack}`, false)
          const without = (await open.ran).stdout
          expect(done(without)).toEqual([
            ...['write', 'create', 'chmod', 'utime', 'rename', 'link', 'mkdir', 'xattr', 'truncate', 'fifo', 'reopen'],
            'atime',
            'ctime',
          ])
          expect(await open.detach()).toBe(true)
          const going = await inside(
            writer,
            false,
            `import os, time\nwhile not os.path.exists('/volumes/shelf/end'): open('/volumes/shelf/beat', 'w').write('x'); time.sleep(0.02)\nos.unlink('/volumes/shelf/end')`,
            false,
          )
          const sealed = await inside(reader, true, attack, waited)
          const { stdout } = await sealed.ran
          expect(done(stdout)).toEqual([])
          expect(stdout.trim().split('\n')).toHaveLength(16)
          expect(await sealed.detach()).toBe(true)
          const ending = await inside(reader, false, `open('/volumes/shelf/end', 'w')`, false)
          await ending.ran
          expect((await going.ran).ending).toEqual({ kind: 'exited', code: 0 })
          for (const { detach } of [ending, going]) expect(await detach()).toBe(true)
        })
      }
    })
  }
})
