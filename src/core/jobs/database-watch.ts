import { BackgroundJob } from '../../base/background-job.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Store } from '../../store/store.ts'

/** Two system calls while all is well. */
const everyMs = 1_000

/** Notices that the database cannot be written although no call needs it, and that it can be written again. */
export const databaseWatch = (store: Store, log: Log): BackgroundJob =>
  new BackgroundJob({ everyMs, work: () => store.checkDisk(), onFault: (error) => fault(error, log) })
