import type { RunSpec } from '../../base/run.ts'
import { probeLimits } from '../probe.ts'
import { createSlot, type SlotMachine } from '../slots/create-slot.ts'

/** What importing may take, large modules on a slow machine included. */
const importWithinMs = 60_000
const pauseMs = 5

/**
 * Imports the modules once, in a slot of its own, as every slot will.
 * @returns why that does not work, in the words of the interpreter; undefined when it does.
 */
export async function findPreloadProblem(host: SlotMachine, modules: readonly string[]): Promise<string | undefined> {
  if (!host.languages.some(({ language }) => language === 'python')) return 'the image has no python'
  const slot = await createSlot(host)
  try {
    slot.bind(probeLimits)
    slot.prewarm(specOf(modules))
    for (let waitedMs = 0; waitedMs < importWithinMs; waitedMs += pauseMs) {
      if (slot.zygoteProblem !== undefined) return slot.zygoteProblem
      if (!slot.healthy) return slot.unhealthyReason
      if (slot.prewarmed === 'ready') return undefined
      await new Promise((resolve) => setTimeout(resolve, pauseMs))
    }
    return 'it takes too long'
  } finally {
    await slot.destroy()
  }
}

const specOf = (preload: readonly string[]): RunSpec => ({
  runId: 'trc_preload',
  orgId: 'org_preload',
  keyId: 'key_preload',
  profile: 'preload',
  profileRevision: '1',
  reuse: 'key',
  language: 'python',
  preload,
  env: {},
  limits: probeLimits,
  detached: false,
})
