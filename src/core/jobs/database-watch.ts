import { BackgroundJob } from '../../base/background-job.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Store } from '../../store/store.ts'

/** Interval of the check, which takes two system calls while there is no problem. */
const everyMs = 1_000

/** Returns a job that detects whether the database can be written, even if no call writes to it. */
export const databaseWatch = (store: Store, log: Log): BackgroundJob =>
  new BackgroundJob({ everyMs, work: () => store.checkDisk(), onFault: (error) => fault(error, log) })
