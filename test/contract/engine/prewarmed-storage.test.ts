import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Language } from '../../../src/base/run.ts'
import type { Machine } from '../../../src/engine/machine.ts'
import { createSlot } from '../../../src/engine/slots/create-slot.ts'
import type { Slot } from '../../../src/engine/slots/slot.ts'
import { Dock } from '../../../src/storage/dock.ts'
import {
  type EngineMachine,
  engineMachine,
  installed,
  prewarm,
  start,
  testLimits,
} from '../../support/engine-machine.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { openRoom, type Room, textAt } from '../../support/storage-fixture.ts'

inPrivateMounts(import.meta.filename, () => {
  for (const runtime of ['runc', 'crun'] as const) {
    describe.skipIf(!installed(runtime))(`storage for a prewarmed interpreter in a slot of ${runtime}`, () => {
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
        slot.bind({ ...testLimits, memoryBytes: 256 * 1024 ** 2 })
      }, 60_000)

      afterAll(async () => {
        await slot.destroy()
        await host.close()
        expect(machine.leftovers()).toEqual([])
        machine.remove()
        await room.remove()
      })

      /** A run with this storage as its home, in a jail that was created before. */
      const withStorage = async (
        name: string,
        code: string,
        way: 'hosted' | 'fresh' = 'hosted',
        language: Language = 'python',
      ) => {
        const mounted = await room.mounted(name)
        if (!(slot.dock instanceof Dock)) throw new Error('the slot has no dock')
        const options = { initPid: slot.pid, name: `home-${++names}`, readOnly: false }
        if (way === 'hosted') await prewarm(slot, language)
        else if (slot.prewarmed !== 'nothing') throw new Error('something waits')
        const attachment = await slot.dock.attach(mounted, options)
        const ran = await start(slot, language, code, { dock: attachment.name }).ran
        expect(await attachment.detach()).toBe(true)
        const left = await textAt(mounted.root.fd, 'note').catch(() => undefined)
        expect(await room.filesystems.unmount(mounted)).toBe(true)
        return { ...ran, left }
      }

      it('is its home directory, as for any run', async () => {
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

      it('is the home directory of a prewarmed node, for both module systems and all file operations', async () => {
        const install = `
const fs = require('node:fs')
fs.mkdirSync('node_modules/mine', { recursive: true })
fs.writeFileSync('node_modules/mine/index.js', 'module.exports = "mine"')
fs.writeFileSync('local.mjs', 'export default import.meta.url')
fs.writeFileSync('note', 'remembered')
`
        const use = `
const fs = require('node:fs')
console.log(process.cwd(), fs.realpathSync('.'), fs.readlinkSync('/proc/self/cwd'), fs.statSync('.').uid)
console.log(fs.readdirSync('.').sort(), fs.readdirSync(process.env.HOME).sort(), require('mine'), require.resolve('mine'))
console.log(require('node:child_process').execSync('pwd; ls').toString())
console.log(fs.readFileSync('/proc/self/mountinfo', 'utf8').split('\\n').filter((line) => line.includes('loop')).map((line) => line.split(' ').slice(4, 6)))
import('./local.mjs').then((local) => console.log(local.default))
fs.appendFileSync('note', ' again')
`
        const seen = []
        for (const way of ['hosted', 'fresh'] as const) {
          await withStorage(`node-${way}`, install, way, 'node')
          seen.push(await withStorage(`node-${way}`, use, way, 'node'))
        }
        const [hosted, fresh] = seen
        expect(hosted!.stdout).toMatch(/^\/home\/baponi \/home\/baponi \/home\/baponi 1000\n/)
        expect([hosted!.stdout, hosted!.stderr]).toEqual([fresh!.stdout, ''])
        expect([hosted!.left, fresh!.left]).toEqual(['remembered again', 'remembered again'])
      })

      it('can contain packages of the user, which are found in the usual order', async () => {
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

      it.each(['python', 'node'] as const)(
        'is let go of when a run of %s is stopped at any moment',
        async (language) => {
          const mounted = await room.mounted(`stopped-${language}`)
          if (!(slot.dock instanceof Dock)) throw new Error('the slot has no dock')
          for (let times = 0; times < 8; times++) {
            const options = { initPid: slot.pid, name: `home-${++names}`, readOnly: false }
            await prewarm(slot, language)
            const attachment = await slot.dock.attach(mounted, options)
            const { run, ran } = start(slot, language, language === 'node' ? 'for (;;);' : 'while True: pass', {
              dock: attachment.name,
            })
            if (times > 0) await new Promise((resolve) => setTimeout(resolve, times / 2))
            run.stop('cancelled')
            expect((await ran).ending.kind).toBe('cancelled')
            expect(await attachment.detach()).toBe(true)
          }
          expect(slot.healthy).toBe(true)
          expect(await room.filesystems.unmount(mounted)).toBe(true)
        },
      )
    })
  }
})
