import { describe, expect, it } from 'vitest'
import type { Slot } from '../../../src/engine/slots/slot.ts'
import { installed, prewarm, start, testLimits } from '../../support/engine-machine.ts'
import { nodePrograms } from '../../support/node-programs.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { twoSlots } from '../../support/two-slots.ts'

const runtime = (['crun', 'runc'] as const).find(installed)

inPrivateMounts(import.meta.filename, () => {
  describe.skipIf(runtime === undefined)('a prewarmed node process', () => {
    const slots = twoSlots(runtime, { ...testLimits, memoryBytes: 256 * 1024 ** 2 })

    const observe = async (slot: Slot, code: string) => {
      const { ending, stdout, stderr, outputBytes, oomKills } = await start(slot, 'node', code).ran
      // Addresses differ from one process to the next anyway.
      return { ending, stdout, stderr: stderr.replaceAll(/\b0x[0-9a-f]+\b/g, '0x…'), outputBytes, oomKills }
    }

    for (const [does, code] of Object.entries(nodePrograms)) {
      it(`behaves like a new one for a program that ${does}`, async () => {
        await prewarm(slots.prewarmed, 'node')
        expect(await observe(slots.prewarmed, code)).toEqual(await observe(slots.fresh, code))
      })
    }
  })
})
