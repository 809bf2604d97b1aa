import { mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { StartRefused } from '../../../src/base/errors.ts'
import { inspect } from '../../../src/cli/inspect.ts'
import { openMachine } from '../../../src/engine/machine.ts'
import { createSlot } from '../../../src/engine/slots/create-slot.ts'
import { IdRanges } from '../../../src/engine/slots/id-ranges.ts'
import { engineMachine, installed } from '../../support/engine-machine.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'

/** No process of this host has its ids: every instance takes them from the other end. */
const lastRange = 0x7fff_0000

inPrivateMounts(import.meta.filename, () => {
  describe('the engine', () => {
    it.skipIf(!installed('runsc'))(
      'refuses gVisor, whose runs the host cannot put under limits, with what to do',
      async () => {
        const machine = engineMachine('runsc')
        const refused = await machine.open().catch((error: unknown) => error)
        expect(refused).toBeInstanceOf(StartRefused)
        expect((refused as StartRefused).message).toContain('inside its own kernel')
        expect((refused as StartRefused).remedy).toContain('crun or runc')
        expect(machine.leftovers()).toEqual([])
        machine.remove()
      },
    )

    it('rejects a guest that does not respond, says so, and leaves nothing behind', async () => {
      const machine = engineMachine('auto')
      const dir = mkdtempSync(join(tmpdir(), 'glovebox-mute-'))
      const guestPath = join(dir, 'guest')
      writeFileSync(guestPath, '#!/nowhere\n', { mode: 0o755 })
      await expect(openMachine({ ...machine.settings, guestPath })).rejects.toThrow(StartRefused)
      expect(machine.leftovers()).toEqual([])
      rmSync(dir, { recursive: true })
      machine.remove()
    })

    it('reclaims the id ranges of removed instances, and of no live one, also when two start at once', async () => {
      const [first, second, third] = [engineMachine('auto'), engineMachine('auto'), engineMachine('auto')]
      const { idLeaseDir } = first.settings
      const living = await first.open()
      const slot = await createSlot(living)
      const [kept = ''] = readdirSync(idLeaseDir)
      new IdRanges(idLeaseDir, 'gone', lastRange).lease()
      const starting = [second, third].map(({ settings }) => openMachine({ ...settings, idLeaseDir }))
      const hosts = await Promise.all(starting)
      expect(hosts.map(({ reclaimed }) => reclaimed.idRanges).sort()).toEqual([0, 1])
      const others = await Promise.all(hosts.map((host) => createSlot(host)))
      expect(readdirSync(idLeaseDir)).toHaveLength(3)
      expect(readlinkSync(join(idLeaseDir, kept))).toContain(first.settings.instanceId)
      for (const one of [slot, ...others]) await one.destroy()
      for (const host of [living, ...hosts]) await host.close()
      expect(readdirSync(idLeaseDir)).toEqual([])
      for (const machine of [first, second, third]) machine.remove()
    })

    it('rejects an instance id that could escape its directory', async () => {
      const machine = engineMachine('auto')
      await expect(openMachine({ ...machine.settings, instanceId: '../other' })).rejects.toThrow(/cannot be used/)
      machine.remove()
    })
  })

  describe('doctor', () => {
    it('verifies every isolation layer from inside', async () => {
      const machine = engineMachine('auto')
      const checks = await inspect(machine.settings, '/tmp', 64 * 1024 ** 2)
      expect(checks.filter(({ ok, name }) => !ok && name !== 'disk')).toEqual([])
      expect(checks.map(({ name }) => name)).toEqual(
        expect.arrayContaining([
          'runtime',
          'cgroups',
          'languages',
          'id range',
          'capabilities',
          'system calls',
          'namespaces',
        ]),
      )
      // One is used; for each other one the reason is given.
      const others = checks.filter(({ name }) => name.startsWith('not '))
      expect(others).toHaveLength(2)
      expect(others.every(({ detail, remedy }) => detail !== '' && remedy !== undefined)).toBe(true)
      expect(machine.leftovers()).toEqual([])
      machine.remove()
    })

    it('names what is missing and the remedy', async () => {
      const machine = engineMachine('auto')
      const checks = await inspect({ ...machine.settings, guestPath: '/nonexistent' }, '/tmp', 2 ** 60)
      const failed = checks.filter(({ ok }) => !ok)
      expect(failed.map(({ name }) => name)).toEqual(['start', 'memory'])
      expect(failed.every(({ remedy }) => remedy !== undefined)).toBe(true)
      machine.remove()
    })
  })
})
