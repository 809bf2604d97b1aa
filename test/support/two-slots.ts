import { afterAll, beforeAll, expect } from 'vitest'
import type { Limits } from '../../src/base/run.ts'
import type { Machine } from '../../src/engine/machine.ts'
import type { RuntimeName } from '../../src/engine/settings.ts'
import { createSlot } from '../../src/engine/slots/create-slot.ts'
import type { Slot } from '../../src/engine/slots/slot.ts'
import { type EngineMachine, engineMachine } from './engine-machine.ts'

/** A slot whose runs get a new interpreter, and one whose runs find a prewarmed one. */
export interface TwoSlots {
  readonly fresh: Slot
  readonly prewarmed: Slot
}

/**
 * Creates two slots of one engine for all tests of a `describe`, and checks that nothing is left of them afterwards.
 * @returns the slots, to be used within a test.
 */
export function twoSlots(runtime: RuntimeName | undefined, limits: Limits): TwoSlots {
  let engine: EngineMachine
  let machine: Machine
  const slots: Slot[] = []
  beforeAll(async () => {
    engine = engineMachine(runtime ?? 'auto')
    machine = await engine.open()
    slots.push(await createSlot(machine), await createSlot(machine))
    for (const slot of slots) slot.bind(limits)
  })
  afterAll(async () => {
    for (const slot of slots) await slot.destroy()
    await machine?.close()
    engine.remove()
    expect(engine.leftovers()).toEqual([])
  })
  return {
    get fresh() {
      return slots[0]!
    },
    get prewarmed() {
      return slots[1]!
    },
  }
}
