import type { SlotCgroup } from '../cgroups/cgroups.ts'
import type { SlotSockets } from '../jails/socket-memory.ts'
import type { Guest } from './guest.ts'
import { hostPidOf } from './host-pid.ts'

/** What a run needs of its slot. */
export interface RunSlot {
  guest: Guest
  cgroup: SlotCgroup
  /** What lives in `run` between runs, by its number on the host: what the processes of runs are forked from. */
  residents: ReadonlySet<number>
  sockets: SlotSockets
  /** How many processors the run is shown. */
  shownCpus: number
  /** To be called before a jail is mounted. @returns what says that it is there, or is not to be; at least once. */
  beginMounting(): () => void
  /** Destroys the slot. Never rejects: resolves also when the slot could not be removed. */
  condemn(reason: string): Promise<void>
}

/** Output the guest may send ahead of us: enough to stream at full speed, little enough to end promptly. */
export const creditWindowBytes = 512 * 1024
/** The same for images. */
export const pictureWindowBytes = 256 * 1024
/** A jail takes a millisecond; a machine in trouble gets this long. */
export const jailWithinMs = 10_000

/**
 * Holds the guest's word for a waiting process against the kernel's.
 * @returns its number on the host.
 * @throws Error when the kernel does not show it, or not under the limits of runs.
 */
export function requireUnderLimits({ cgroup }: RunSlot, slotPid: number): number {
  const pid = hostPidOf(slotPid, 'jail', cgroup.runPids())
  if (!cgroup.holds(pid)) throw new Error('the kernel shows it elsewhere')
  return pid
}
