import { setImmediate } from 'node:timers/promises'
import { type Kysely, sql, type Transaction } from 'kysely'
import { statusOf } from '../base/execution-status.ts'
import { type Ending, noTimings, type RunResult, type ShownImage } from '../base/run.ts'
import type { Append } from './audit.ts'
import { auditOfRun } from './audit-of-run.ts'
import { Compiled } from './compiled.ts'
import type { DurableTransaction } from './durably.ts'
import type { RunExtras } from './run-history.ts'
import { metadataPairs } from './run-metadata.ts'
import type { IdempotencyRow, KeptOutput, RunRow, Store } from './store.ts'
import type { StoredOutput, StoredRun, Tables } from './tables.ts'
import type { CountRun } from './usage.ts'
import { makeDue, promiseDelivery } from './webhooks.ts'

/** Statements that write the ending of a run. */
interface WithEnding {
  append: Append
  countRun: CountRun
  /** Resolves when a large value of so many bytes can be written. */
  room(bytes: number): Promise<void>
}

/** Output of this size waits while the log of the database is long. */
const largeBytes = 64 * 1024

export const runs = (
  db: Kysely<Tables>,
  durably: DurableTransaction,
  { append, countRun, room }: WithEnding,
): Store['runs'] => ({
  async begin(run, beside = {}) {
    if (beside.delivery) await durably((transaction) => insert(transaction, run, beside))
    else if (beside.code || run.metadata !== null) {
      await db.transaction().execute((transaction) => insert(transaction, run, beside))
    } else await db.insertInto('runs').values(toStored(run)).execute()
  },

  beginOnce: (run, record, beside = {}) =>
    durably(async (transaction) => {
      const taken = await findRecord(transaction, record)
      if (taken !== undefined && taken.expiresAt > run.createdAt) return taken
      if (taken !== undefined) await transaction.deleteFrom('claims').where('runId', '=', taken.runId).execute()
      await insert(transaction, run, beside)
      await transaction.insertInto('claims').values(record).execute()
      return undefined
    }),

  async idempotencyRecord(key, at) {
    const taken = await findRecord(db, key)
    return taken !== undefined && taken.expiresAt > at ? taken : undefined
  },

  async deleteIdempotencyRecord(id) {
    await db.deleteFrom('claims').where('runId', '=', id).execute()
  },

  discard: (id) =>
    db.transaction().execute(async (transaction) => {
      const unfinished = transaction.selectFrom('runs').select('id').where('id', '=', id)
      const isUnfinished = await unfinished.where('finishedAt', 'is', null).executeTakeFirst()
      if (!isUnfinished) return
      // Deletes a thread that this run created when it locked it, and that no run has used.
      await transaction
        .deleteFrom('threads')
        .where('lockedBy', '=', id)
        .where('fence', '=', 1)
        .whereRef('createdAt', '=', 'lastUsedAt')
        .execute()
      await deleteRuns(transaction, [id])
    }),

  async finish(id, finishedAt, ending, result, output, deliveryDueAt = finishedAt) {
    const bytes = output ? sizeOf(output) : 0
    if (bytes >= largeBytes) await room(bytes)
    return await db.transaction().execute(async (transaction) => {
      const stored = await finish(transaction, id, finishedAt, ending, result)
      if (stored === undefined) return undefined
      if (output) {
        await transaction
          .insertInto('runOutputs')
          .values(toStoredOutput(stored, finishedAt, output))
          .execute()
        const images = output.images.map((image, position) => ({
          runId: id,
          position,
          ...image,
          endedAt: finishedAt,
        }))
        if (images.length > 0) await transaction.insertInto('runImages').values(images).execute()
      }
      if (stored.deliveryMode === 'webhook') await makeDue(transaction, id, deliveryDueAt)
      await countRun(transaction, stored, finishedAt, result)
      const run = toRow(stored)
      await append(transaction, auditOfRun(run, finishedAt))
      return run
    })
  },

  async output(id) {
    const stored = await db.selectFrom('runOutputs').selectAll().where('runId', '=', id).executeTakeFirst()
    if (stored === undefined) return undefined
    const images = await db
      .selectFrom('runImages')
      .select(['mimeType', 'bytes'])
      .where('runId', '=', id)
      .orderBy('position')
      .execute()
    return toOutput(stored, images)
  },

  async get(id) {
    const stored = await db.selectFrom('runs').selectAll().where('id', '=', id).executeTakeFirst()
    return stored && toRow(stored)
  },

  async unfinished() {
    const stored = await db
      .selectFrom('runs')
      .selectAll()
      .where('finishedAt', 'is', null)
      .orderBy('createdAt')
      .execute()
    return stored.map(toRow)
  },
})

/** Inserts the row of a run together with the rows that belong to it. */
async function insert(db: Transaction<Tables>, run: NewRun, { code, delivery }: RunExtras): Promise<void> {
  await db.insertInto('runs').values(toStored(run)).execute()
  const pairs = metadataPairs(run)
  if (pairs.length > 0) await db.insertInto('runMetadata').values(pairs).execute()
  if (code) await db.insertInto('runCodes').values({ runId: run.id, code }).execute()
  if (delivery) await promiseDelivery(db, run, delivery)
}

const endRun = new Compiled<StoredRun>((db) =>
  db
    .updateTable('runs')
    .set({ finishedAt: '', ending: '', result: '', status: 'failed' })
    .where('id', '=', '')
    .where('finishedAt', 'is', null)
    .returningAll(),
)

function finish(
  transaction: Transaction<Tables>,
  id: string,
  finishedAt: string,
  ending: Ending,
  result: RunResult | null,
): Promise<StoredRun | undefined> {
  const written = [finishedAt, JSON.stringify(ending), result && JSON.stringify(result), statusOf(ending)]
  return endRun.row(transaction, [...written, id])
}

const findRecord = (db: Kysely<Tables>, { orgId, keyId, idempotencyKey }: Pick<IdempotencyRow, RecordKey>) =>
  db
    .selectFrom('claims')
    .selectAll()
    .where('orgId', '=', orgId)
    .where('keyId', '=', keyId)
    .where('idempotencyKey', '=', idempotencyKey)
    .executeTakeFirst()

type RecordKey = 'orgId' | 'keyId' | 'idempotencyKey'

const besideRuns = ['runOutputs', 'runImages', 'runCodes', 'runMetadata', 'claims', 'tasks', 'deliveries'] as const

/** Deletes runs with every row that refers to them. */
export async function deleteRuns(db: Transaction<Tables>, ids: readonly string[]): Promise<void> {
  for (const table of besideRuns) {
    await sql`delete from ${sql.table(table)} where ${sql.ref('runId')} in (${sql.join(ids)})`.execute(db)
  }
  await db.deleteFrom('runs').where('id', 'in', ids).execute()
}

/** Maximum number of rows deleted in one statement, which takes a few milliseconds. */
const batchRows = 200

/** Deletes expired rows; see `Store.forget`. */
export async function forget(db: Kysely<Tables>, now: string, endedBefore: string): Promise<void> {
  for (const [table, id] of [
    ['claims', 'runId'],
    ['tasks', 'id'],
    ['usedLinks', 'id'],
  ] as const) {
    await inBatches(async () => {
      const expired = sql`select ${sql.ref(id)} from ${sql.table(table)} where ${sql.ref('expiresAt')} < ${now} limit ${batchRows}`
      const deleted = await sql`delete from ${sql.table(table)} where ${sql.ref(id)} in (${expired})`.execute(db)
      return Number(deleted.numAffectedRows ?? 0)
    })
  }
  await inBatches(() => db.transaction().execute((transaction) => forgetOutputs(transaction, endedBefore)))
}

/** Deletes expired output and images. @returns the number of runs that they belonged to. */
async function forgetOutputs(db: Transaction<Tables>, endedBefore: string): Promise<number> {
  const old = await db
    .selectFrom('runOutputs')
    .select('runId')
    .where('withRun', '=', 0)
    .where('endedAt', '<', endedBefore)
    .orderBy('endedAt')
    .limit(batchRows)
    .execute()
  const ids = old.map(({ runId }) => runId)
  if (ids.length === 0) return 0
  await db.deleteFrom('runImages').where('runId', 'in', ids).execute()
  await db.deleteFrom('runOutputs').where('runId', 'in', ids).execute()
  return ids.length
}

/** Deletes in batches, and yields to the event loop between two of them. */
async function inBatches(deleteBatch: () => Promise<number>): Promise<void> {
  while ((await deleteBatch()) === batchRows) await setImmediate()
}

type NewRun = Omit<RunRow, 'finishedAt' | 'ending' | 'result'>

const toStored = (run: NewRun): StoredRun => ({
  ...run,
  detached: run.detached ? 1 : 0,
  kept: run.kept ? 1 : 0,
  keepsOutput: run.keepsOutput ? 1 : 0,
  status: 'running',
  finishedAt: null,
  ending: null,
  result: null,
})

/** Adds missing phases with their default, since rows of earlier versions lack phases that were added later. */
const toResult = (result: RunResult): RunResult => ({ ...result, timings: { ...noTimings, ...result.timings } })

export const toRow = ({ status: _, ...stored }: StoredRun): RunRow => ({
  ...stored,
  envNames: stored.envNames ?? '[]',
  detached: stored.detached === 1,
  kept: stored.kept === 1,
  keepsOutput: stored.keepsOutput === 1,
  ending: stored.ending === null ? null : (JSON.parse(stored.ending) as Ending),
  result: stored.result === null ? null : toResult(JSON.parse(stored.result) as RunResult),
})

const sizeOf = ({ stdout, stderr, images }: KeptOutput): number =>
  [stdout, stderr].reduce((sum, { head, tail }) => sum + head.length + tail.length, 0) +
  images.reduce((sum, { bytes }) => sum + bytes.length, 0)

const toStoredOutput = (
  { id, keepsOutput }: StoredRun,
  endedAt: string,
  { stdout, stderr, order }: KeptOutput,
): StoredOutput => ({
  runId: id,
  order: order ?? null,
  withRun: keepsOutput,
  stdoutHead: stdout.head,
  stdoutOmittedBytes: stdout.omittedBytes,
  stdoutTail: stdout.tail,
  stderrHead: stderr.head,
  stderrOmittedBytes: stderr.omittedBytes,
  stderrTail: stderr.tail,
  endedAt,
})

const toOutput = (stored: StoredOutput, images: readonly ShownImage[]): KeptOutput => ({
  stdout: { head: stored.stdoutHead, omittedBytes: stored.stdoutOmittedBytes, tail: stored.stdoutTail },
  stderr: { head: stored.stderrHead, omittedBytes: stored.stderrOmittedBytes, tail: stored.stderrTail },
  ...(stored.order && { order: stored.order }),
  images,
})
