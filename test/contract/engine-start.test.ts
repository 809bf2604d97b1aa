import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { StartRefused } from '../../src/base/errors.ts'
import { inspect } from '../../src/cli/inspect.ts'
import { openHost } from '../../src/engine/host.ts'
import { engineMachine, installed } from './engine-machine.ts'
import { inPrivateMounts } from './private-mounts.ts'

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

    it('refuses a guest that does not speak, says so, and leaves nothing', async () => {
      const machine = engineMachine('auto')
      const dir = mkdtempSync(join(tmpdir(), 'glovebox-mute-'))
      const guestPath = join(dir, 'guest')
      writeFileSync(guestPath, '#!/nowhere\n', { mode: 0o755 })
      await expect(openHost({ ...machine.settings, guestPath })).rejects.toThrow(StartRefused)
      expect(machine.leftovers()).toEqual([])
      rmSync(dir, { recursive: true })
      machine.remove()
    })

    it('refuses an instance id that could leave its place', async () => {
      const machine = engineMachine('auto')
      await expect(openHost({ ...machine.settings, instanceId: '../other' })).rejects.toThrow(/cannot be used/)
      machine.remove()
    })
  })

  describe('doctor', () => {
    it('finds every layer of the isolation to hold, by looking from inside', async () => {
      const machine = engineMachine('auto')
      const checks = await inspect(machine.settings, 64 * 1024 ** 2)
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
      // One is used, and of each other one it says why it is not.
      const others = checks.filter(({ name }) => name.startsWith('not '))
      expect(others).toHaveLength(2)
      expect(others.every(({ detail, remedy }) => detail !== '' && remedy !== undefined)).toBe(true)
      expect(machine.leftovers()).toEqual([])
      machine.remove()
    })

    it('says what stands in the way, and what to do', async () => {
      const machine = engineMachine('auto')
      const checks = await inspect({ ...machine.settings, guestPath: '/nonexistent' }, 2 ** 60)
      const failed = checks.filter(({ ok }) => !ok)
      expect(failed.map(({ name }) => name)).toEqual(['start', 'memory'])
      expect(failed.every(({ remedy }) => remedy !== undefined)).toBe(true)
      machine.remove()
    })
  })
})
