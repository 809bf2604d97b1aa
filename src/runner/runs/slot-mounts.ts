import type { Ending, Quota } from '../../base/run.ts'
import type { Slot } from '../../engine/slots/slot.ts'
import { diskBytesFor } from '../../storage/disks.ts'
import { Dock, type DockMount } from '../../storage/dock.ts'
import { type Mounted, usageOf } from '../../storage/filesystems.ts'

/** Storage in the dock of a slot. */
export interface SlotMount {
  slot: Slot
  mount: DockMount
}

/** Returns the dock of a slot whose runs get filesystems, after limiting them. @throws Error when the slot has no dock. */
export async function dockFor(slot: Slot, filesystems: readonly Mounted[]): Promise<Dock> {
  if (!(slot.dock instanceof Dock)) throw new Error(`slot ${slot.id} has no dock`)
  for (const { device } of filesystems) await slot.limitDevice(device)
  return slot.dock
}

/**
 * Takes storage out of its slot; only when every process of the run is dead. A slot that still holds on to it ends first.
 * @throws what detaching throws; the slot has ended then, too.
 */
export async function detach({ slot, mount }: SlotMount): Promise<void> {
  let isClean = false
  try {
    isClean = await mount.detach()
  } finally {
    // That it could not be ended is the pool's to learn, from its own call.
    if (!isClean) await slot.destroy().catch(() => undefined)
  }
}

/**
 * With no more room than this a filesystem holds its quota: so much larger it is made, for the bookkeeping of ext4, which
 * refuses a write while a part of that is still free (measured: 58 KB of 8 MiB, 975 KB of 1 GiB).
 */
const fullBytes = (totalBytes: number): number => 128 * 1024 + totalBytes / 1024

/** @returns the limit that storage has come to, to the last block or the last file; `undefined` while there is room. */
export async function limitReached(mounted: Mounted, quota: Quota): Promise<number | undefined> {
  const { totalBytes, freeBytes, freeInodes } = await usageOf(mounted)
  if (freeBytes >= fullBytes(totalBytes) && freeInodes > 0) return undefined
  // One that was made for more than this profile gives keeps its size.
  return totalBytes > diskBytesFor(quota) ? totalBytes : quota.bytes
}

/** Whether a program gave up by itself, or died of a page that could not be written. */
export const hasFailed = (ending: Ending): boolean =>
  (ending.kind === 'exited' && ending.code !== 0) || (ending.kind === 'signaled' && ending.signal === 'BUS')
