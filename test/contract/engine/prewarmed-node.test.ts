import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Machine } from '../../../src/engine/machine.ts'
import { createSlot } from '../../../src/engine/slots/create-slot.ts'
import type { Slot } from '../../../src/engine/slots/slot.ts'
import {
  type EngineMachine,
  engineMachine,
  installed,
  prewarm,
  start,
  testLimits,
} from '../../support/engine-machine.ts'
import { nodePrograms } from '../../support/node-programs.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'

const runtime = (['crun', 'runc'] as const).find(installed)

inPrivateMounts(import.meta.filename, () => {
  describe.skipIf(runtime === undefined)('a prewarmed node process', () => {
    let machine: EngineMachine
    let host: Machine
    let [fresh, waiting]: Slot[] = []

    beforeAll(async () => {
      machine = engineMachine(runtime ?? 'auto')
      host = await machine.open()
      ;[fresh, waiting] = [await createSlot(host), await createSlot(host)]
      for (const slot of [fresh, waiting]) slot.bind(limits)
    })
    afterAll(async () => {
      await fresh?.destroy()
      await waiting?.destroy()
      await host?.close()
      machine.remove()
      expect(machine.leftovers()).toEqual([])
    })

    const limits = { ...testLimits, memoryBytes: 256 * 1024 ** 2 }
    const observe = async (slot: Slot, code: string) => {
      const { ending, stdout, stderr, outputBytes, oomKills } = await start(slot, 'node', code).ran
      // Addresses differ from one process to the next anyway.
      return { ending, stdout, stderr: stderr.replaceAll(/\b0x[0-9a-f]+\b/g, '0x…'), outputBytes, oomKills }
    }

    for (const [does, code] of Object.entries(nodePrograms)) {
      it(`behaves like a new one for a program that ${does}`, async () => {
        await prewarm(waiting!, 'node')
        expect(await observe(waiting!, code)).toEqual(await observe(fresh!, code))
      })
    }
  })
})
