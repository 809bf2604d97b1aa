import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Machine } from '../../../src/engine/machine.ts'
import { createSlot } from '../../../src/engine/slots/create-slot.ts'
import type { Slot } from '../../../src/engine/slots/slot.ts'
import { Dock } from '../../../src/storage/dock.ts'
import { type Mounted, usageOf } from '../../../src/storage/filesystems.ts'
import { type EngineMachine, engineMachine, installed, start, testLimits } from '../../support/engine-machine.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { mib, openRoom, type Room, textAt } from '../../support/storage-fixture.ts'

inPrivateMounts(import.meta.filename, () => {
  for (const runtime of ['runc', 'crun'] as const) {
    describe.skipIf(!installed(runtime))(`storage in a slot of ${runtime}`, () => {
      let machine: EngineMachine
      let host: Machine
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
        await room.remove()
      })

      const dockOf = (of: Slot): Dock => {
        if (!(of.dock instanceof Dock)) throw new Error('the slot has no dock')
        return of.dock
      }

      const attach = (mounted: Mounted, of = slot) => {
        names += 1
        return dockOf(of).attach(mounted, { initPid: of.pid, name: `home-${names}`, readOnly: false })
      }

      async function bash(code: string, dock: string | undefined, of = slot) {
        return start(of, 'bash', code, dock === undefined ? {} : { dock }).ran
      }

      it('is the home directory of a run, belongs to its user, and is there again for the next run', async () => {
        const mounted = await room.mounted('kept')
        const first = await attach(mounted)
        const wrote = await bash('pwd; stat -c %u:%g .; mkdir -p a/b; echo remembered >a/b/note; id -u', first.name)
        expect(wrote).toMatchObject({ stdout: '/home/baponi\n1000:1000\n1000\n', ending: { kind: 'exited', code: 0 } })
        expect(await first.detach()).toBe(true)
        expect(await textAt(mounted.root.fd, 'a/b/note')).toBe('remembered\n')
        const second = await attach(mounted)
        expect((await bash('cat a/b/note', second.name)).stdout).toBe('remembered\n')
        expect(await second.detach()).toBe(true)
        expect(await room.filesystems.unmount(mounted)).toBe(true)
      })

      it('shows a run nothing of other storage in the slot, nor of the dock', async () => {
        const mine = await room.mounted('mine')
        const other = await room.mounted('other')
        const [home, beside] = [await attach(mine), await attach(other)]
        const look =
          'ls /dock 2>&1; grep -c /dev/loop /proc/self/mountinfo; grep -E "dock|shared:|master:" /proc/self/mountinfo'
        const { stdout } = await bash(look, home.name)
        expect(stdout).toBe("ls: cannot access '/dock': No such file or directory\n1\n")
        const without = await bash('grep -c /dev/loop /proc/self/mountinfo; ls -A', undefined)
        expect(without.stdout).toBe('0\n')
        expect(await home.detach()).toBe(true)
        expect(await beside.detach()).toBe(true)
        for (const mounted of [mine, other]) expect(await room.filesystems.unmount(mounted)).toBe(true)
      })

      it('allows no set-uid files or devices', async () => {
        const mounted = await room.mounted('flags')
        const home = await attach(mounted)
        const { stdout } = await bash('grep " /home/baponi " /proc/self/mountinfo; mknod d c 1 3 2>&1', home.name)
        expect(stdout).toMatch(/ rw,nosuid,nodev,noatime(,idmapped)? - ext4 /)
        expect(stdout).toMatch(/Operation not permitted/)
        expect(await home.detach()).toBe(true)
        await room.filesystems.unmount(mounted)
      })

      it('reports that it is full, and lets the next run make room', async () => {
        const mounted = await room.mounted('full', { bytes: 4 * mib, inodes: 64 })
        const home = await attach(mounted)
        const filled = await bash('head -c 8M /dev/zero >big', home.name)
        expect(filled.stderr).toMatch(/No space left on device/)
        expect((await usageOf(mounted)).freeBytes).toBeLessThan(65_536)
        const many = await bash('rm big; for i in $(seq 100); do : >f$i || exit 3; done', home.name)
        expect(many.stderr).toMatch(/No space left on device/)
        expect((await bash('rm f* && echo again', home.name)).stdout).toBe('again\n')
        expect(await home.detach()).toBe(true)
        await room.filesystems.unmount(mounted)
      })

      it('never confuses the bare directory of the dock with storage', async () => {
        const other = await createSlot(host)
        other.bind(testLimits)
        mkdirSync(join(dockOf(other).dir, 'bare'))
        const ran = await bash('echo lost >note', 'bare', other)
        expect(ran.ending).toEqual({ kind: 'failed', reason: 'jail_failed' })
        expect(other.unhealthyReason).toMatch(/no storage is mounted/)
        await other.destroy()
      })

      it('is released by a slot that is destroyed during a write', async () => {
        const mounted = await room.mounted('torn')
        const other = await createSlot(host)
        other.bind(testLimits)
        const home = await attach(mounted, other)
        const running = Promise.withResolvers<void>()
        const { ran } = start(other, 'bash', 'while :; do echo more >>log; done', {
          dock: home.name,
          onRunning: running.resolve,
        })
        await running.promise
        await other.destroy()
        expect((await ran).ending).toEqual({ kind: 'failed', reason: 'slot_lost' })
        expect(await home.detach()).toBe(true)
        expect(existsSync(dockOf(other).dir)).toBe(false)
        expect(await room.filesystems.unmount(mounted)).toBe(true)
      })
    })
  }
})
