import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { EngineHost } from '../../src/engine/host.ts'
import { createSlot, type Slot } from '../../src/engine/slot.ts'
import { Dock } from '../../src/storage/dock.ts'
import { type EngineMachine, engineMachine, installed, makeReady, start, testLimits } from './engine-machine.ts'
import { inPrivateMounts } from './private-mounts.ts'
import { openRoom, type Room, textAt } from './storage-rooms.ts'

inPrivateMounts(import.meta.filename, () => {
  for (const runtime of ['runc', 'crun'] as const) {
    describe.skipIf(!installed(runtime))(`storage for a python that waits in a slot of ${runtime}`, () => {
      let machine: EngineMachine
      let host: EngineHost
      let room: Room
      let slot: Slot
      let names = 0

      beforeAll(async () => {
        machine = engineMachine(runtime)
        host = await machine.open(Dock.open)
        room = await openRoom()
        slot = await createSlot(host)
        slot.bind(testLimits)
      }, 60_000)

      afterAll(async () => {
        await slot.destroy()
        await host.close()
        expect(machine.leftovers()).toEqual([])
        machine.remove()
        room.remove()
      })

      /** A run with this storage at home, in a jail that was made before. */
      const withStorage = async (name: string, code: string, way: 'hosted' | 'fresh' = 'hosted') => {
        const mounted = await room.mounted(name)
        if (!(slot.dock instanceof Dock)) throw new Error('the slot has no dock')
        const options = { initPid: slot.pid, name: `home-${++names}`, readOnly: false }
        if (way === 'hosted') await makeReady(slot, 'python')
        const attachment = await slot.dock.attach(mounted, options)
        const ran = await start(slot, 'python', code, { dock: attachment.name }).ran
        expect(await attachment.detach()).toBe(true)
        const left = await textAt(mounted.root.fd, 'note').catch(() => undefined)
        expect(await room.filesystems.unmount(mounted)).toBe(true)
        return { ...ran, left }
      }

      it('is its home, as it is the home of any run', async () => {
        const code = `
import os
print(os.getppid() == 0, os.getcwd(), os.stat(".").st_uid, sorted(os.listdir(".")))
print([line.split(" - ")[0].split()[4:] + line.split(" - ")[1].split()[:1] for line in open("/proc/self/mountinfo") if "loop" in line])
open("note", "w").write("remembered")
`
        const hosted = await withStorage('home-hosted', code)
        const fresh = await withStorage('home-fresh', code, 'fresh')
        expect(hosted.stdout).toMatch(/^True \/home\/baponi 1000 \[/)
        expect(hosted.stdout.replace('True', 'False')).toBe(fresh.stdout)
        expect([hosted.left, fresh.left]).toEqual(['remembered', 'remembered'])
      })

      it('may hold packages of the user, which are found in the usual order', async () => {
        const install = `
import site, os
os.makedirs(site.getusersitepackages())
open(site.getusersitepackages() + "/mine.py", "w").write("print('mine')")
`
        const use = 'import sys\nprint(sys.path)\nimport mine'
        await withStorage('packages-hosted', install)
        await withStorage('packages-fresh', install, 'fresh')
        const hosted = await withStorage('packages-hosted', use)
        expect(hosted.stdout).toContain('mine\n')
        expect(hosted.stdout).toBe((await withStorage('packages-fresh', use, 'fresh')).stdout)
      })

      it('is let go of when the run is stopped at any moment', async () => {
        const mounted = await room.mounted('stopped')
        if (!(slot.dock instanceof Dock)) throw new Error('the slot has no dock')
        for (let times = 0; times < 8; times++) {
          const options = { initPid: slot.pid, name: `home-${++names}`, readOnly: false }
          await makeReady(slot, 'python')
          const attachment = await slot.dock.attach(mounted, options)
          const { run, ran } = start(slot, 'python', 'while True: pass', { dock: attachment.name })
          if (times > 0) await new Promise((resolve) => setTimeout(resolve, times / 2))
          run.stop('cancelled')
          expect((await ran).ending.kind).toBe('cancelled')
          expect(await attachment.detach()).toBe(true)
        }
        expect(slot.healthy).toBe(true)
        expect(await room.filesystems.unmount(mounted)).toBe(true)
      })
    })
  }
})
