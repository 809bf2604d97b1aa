import type { RunSpec } from '../../base/run.ts'
import type { Slot } from './slot.ts'

/** A slot whose binding to the key and profile revision of its first run is permanent. */
export interface BoundSlot {
  slot: Slot
  binding: string
  orgId: string
  keyId: string
  /** Set while idle. */
  idleTimer: NodeJS.Timeout | undefined
}

/** No run has this binding, so a slot that carries it is never taken again. */
export const retired = ''

export const isForOneRun = ({ reuse, thread }: RunSpec): boolean =>
  reuse === 'never' || (reuse === 'thread' && thread === undefined)

/** Returns what a run has in common with every run that may use the same slot. @param image ID of its image. */
export function bindingOf(spec: RunSpec, image: string): string {
  if (isForOneRun(spec)) return spec.runId
  const { keyId, profile, profileRevision } = spec
  return JSON.stringify([keyId, profile, profileRevision, image, ...(spec.reuse === 'thread' ? [spec.thread?.id] : [])])
}

/**
 * Of the idle slots of the org that has most of them, the one that idled longest: one org's many keys do not cost another
 * its few.
 * @param idle in the order in which they became idle.
 */
export function mostDispensable(idle: readonly BoundSlot[]): BoundSlot | undefined {
  const idling = new Map<string, number>()
  for (const { orgId } of idle) idling.set(orgId, (idling.get(orgId) ?? 0) + 1)
  const most = Math.max(...idling.values())
  return idle.find(({ orgId }) => idling.get(orgId) === most)
}
