/** What SocketMemory and its thread exchange. */

/** Sent to the thread: a slot was added, or removed. */
export type SlotMessage = SharedSlot | { gone: number }

export interface SharedSlot {
  number: number
  /** The directory whose `cgroup.procs` lists the processes of its runs, and some that are not of a run. */
  procsDir: string
  /** Where the kernel counts their processor time. */
  cpuFile: string
  /** See `cells`. */
  shared: Int32Array
}

export interface ThreadSettings {
  /** Where the kernel counts the processor time of all slots. */
  cpuFile: string
  /** One cell: see `states`. */
  state: Int32Array
}

/** Sent by the thread: that it is there, or a slot whose run it has killed. */
export type ThreadMessage = 'ready' | { slot: number; run: number }

/** What a slot shares with the thread, by index. */
export const cells = {
  /** The current run or sandbox: a number that is not used again; 0 while the slot is free. Written last. */
  run: 0,
  /** Its first process. */
  pid: 1,
  limitKib: 2,
  /** How many processors it can use at once, in hundredths. */
  cpus: 3,
  /** The last run whose processes were killed. Written before they are. */
  struck: 4,
} as const
export const cellCount = 5

/** Whether the thread must be woken when a run begins. */
export const states = { looking: 0, sleeping: 1 } as const
