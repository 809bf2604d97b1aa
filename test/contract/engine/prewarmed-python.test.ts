import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Machine } from '../../../src/engine/machine.ts'
import { createSlot, type Slot } from '../../../src/engine/slots/slot.ts'
import {
  type EngineMachine,
  engineMachine,
  installed,
  prewarm,
  start,
  testLimits,
} from '../../support/engine-machine.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { pythonPrograms } from '../../support/python-programs.ts'

const runtime = (['crun', 'runc'] as const).find(installed)

inPrivateMounts(import.meta.filename, () => {
  describe.skipIf(runtime === undefined)('a python process forked from its host', () => {
    let machine: EngineMachine
    let host: Machine
    let [fresh, hosted]: Slot[] = []

    beforeAll(async () => {
      machine = engineMachine(runtime ?? 'auto')
      host = await machine.open()
      ;[fresh, hosted] = [await createSlot(host), await createSlot(host)]
      for (const slot of [fresh, hosted]) slot.bind(testLimits)
    })
    afterAll(async () => {
      await fresh?.destroy()
      await hosted?.destroy()
      await host?.close()
      machine.remove()
      expect(machine.leftovers()).toEqual([])
    })

    /** Everything that is observable of a run, however it was started. */
    const observe = async (slot: Slot, code: string, env: Record<string, string> = {}) => {
      const { ending, stdout, stderr, outputBytes, oomKills } = await start(slot, 'python', code, { env }).ran
      // Addresses differ from one interpreter to the next anyway.
      const said = [stdout, stderr].map((text) => text.replaceAll(/\b0x[0-9a-f]{6,}\b/g, '0x…'))
      return { ending, said, outputBytes, oomKills }
    }
    const observeHosted = async (code: string, env: Record<string, string> = {}) => {
      await prewarm(hosted!, 'python', env)
      return observe(hosted!, code, env)
    }

    it('is really forked: its parent is outside its jail', async () => {
      const code = 'import os; print(os.getppid())'
      expect((await observe(fresh!, code)).said[0]).toBe('1\n')
      expect((await observeHosted(code)).said[0]).toBe('0\n')
    })

    for (const [does, code] of Object.entries(pythonPrograms)) {
      it(`behaves like a new one for a program that ${does}`, async () => {
        expect(await observeHosted(code)).toEqual(await observe(fresh!, code))
      })
    }
  })
})
