/** The worker thread of `Checkpoints`: moves pages from the write-ahead log to the database on a connection of its own. */
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { parentPort, workerData } from 'node:worker_threads'
import type { CheckpointReport, CheckpointWork, LogState } from './sqlite-checkpoints.ts'

/** Time between two looks at the log. */
const lookMs = 100
/** Moves in a row that let others write in the meantime. */
const passesMax = 5
/** Time after an error, such as a full disk. */
const afterErrorMs = 1_000

const { path, pages } = workerData as CheckpointWork

/** Time that moving the last pages waits for writers and readers, in milliseconds. Other moves do not wait. */
const lockWaitMs = 50
const database = new DatabaseSync(path, { timeout: lockWaitMs })
const statements = {
  noop: database.prepare('pragma wal_checkpoint(noop)'),
  passive: database.prepare('pragma wal_checkpoint(passive)'),
  restart: database.prepare('pragma wal_checkpoint(restart)'),
}
let reported: LogState = { log: 0, checkpointed: 0 }

function run(kind: keyof typeof statements): LogState {
  const { log, checkpointed } = statements[kind].get() as unknown as LogState
  if (log !== reported.log || checkpointed !== reported.checkpointed) {
    reported = { log, checkpointed }
    parentPort?.postMessage(reported satisfies CheckpointReport)
  }
  return reported
}

function checkpoint(): void {
  let { log, checkpointed } = run('noop')
  // Others write while pages are written and synced here; each time there are fewer new ones.
  for (let n = 0; n < passesMax && log - checkpointed >= pages; n++) ({ log, checkpointed } = run('passive'))
  // The next writer begins the log anew only if nothing is left in it. Who always writes would let it grow without end, so
  // the last pages are moved while writers wait.
  if (log >= 4 * pages && log > checkpointed) run('restart')
}

for (;;) {
  let waitMs = lookMs
  try {
    checkpoint()
  } catch (error) {
    parentPort?.postMessage(String(error) satisfies CheckpointReport)
    waitMs = afterErrorMs
  }
  await sleep(waitMs)
}
