import type { Kysely, Transaction } from 'kysely'
import type { Ending, RunResult } from '../base/run.ts'
import type { Append } from './audit.ts'
import { auditOfRun } from './audit-of-run.ts'
import { Compiled } from './compiled.ts'
import type { Durably } from './durably.ts'
import type { ClaimRow, KeptOutput, RunRow, Store } from './store.ts'
import type { StoredOutput, StoredRun, Tables } from './tables.ts'
import type { CountRun } from './usage.ts'

/** What is written with the ending of each run. */
interface WithEnding {
  append: Append
  countRun: CountRun
}

export const runs = (db: Kysely<Tables>, durably: Durably, { append, countRun }: WithEnding): Store['runs'] => {
  const finish = finisher(db)
  return {
    async begin(run) {
      await db.insertInto('runs').values(toStored(run)).execute()
    },

    beginOnce: (run, claim) =>
      durably(async (transaction) => {
        const taken = await claimed(transaction, claim)
        if (taken !== undefined && taken.expiresAt > run.createdAt) return taken
        if (taken !== undefined) await transaction.deleteFrom('claims').where('runId', '=', taken.runId).execute()
        await transaction.insertInto('runs').values(toStored(run)).execute()
        await transaction.insertInto('claims').values(claim).execute()
        return undefined
      }),

    async unclaim(id) {
      await db.deleteFrom('claims').where('runId', '=', id).execute()
    },

    finish: (id, finishedAt, ending, result, output) =>
      db.transaction().execute(async (transaction) => {
        const stored = await finish(transaction, id, finishedAt, ending, result)
        if (stored === undefined) return false
        if (output) {
          await transaction
            .insertInto('runOutputs')
            .values(toStoredOutput(id, finishedAt, output))
            .execute()
        }
        await countRun(transaction, stored, finishedAt, result)
        await append(transaction, auditOfRun(toRow(stored), finishedAt))
        return true
      }),

    async output(id) {
      const stored = await db.selectFrom('runOutputs').selectAll().where('runId', '=', id).executeTakeFirst()
      return stored && toOutput(stored)
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
  }
}

function finisher(db: Kysely<Tables>) {
  const query = new Compiled<StoredRun>(
    db
      .updateTable('runs')
      .set({ finishedAt: '', ending: '', result: '' })
      .where('id', '=', '')
      .where('finishedAt', 'is', null)
      .returningAll(),
  )
  return async (
    transaction: Transaction<Tables>,
    id: string,
    finishedAt: string,
    ending: Ending,
    result: RunResult | null,
  ): Promise<StoredRun | undefined> => {
    const written = [finishedAt, JSON.stringify(ending), result && JSON.stringify(result)]
    return (await query.rows(transaction, [...written, id]))[0]
  }
}

const claimed = (db: Transaction<Tables>, { orgId, keyId, idempotencyKey }: Pick<ClaimRow, ClaimName>) =>
  db
    .selectFrom('claims')
    .selectAll()
    .where('orgId', '=', orgId)
    .where('keyId', '=', keyId)
    .where('idempotencyKey', '=', idempotencyKey)
    .executeTakeFirst()

type ClaimName = 'orgId' | 'keyId' | 'idempotencyKey'

/** See `Store.forget`. */
export async function forget(db: Kysely<Tables>, now: string, endedBefore: string): Promise<void> {
  await db.deleteFrom('claims').where('expiresAt', '<', now).execute()
  await db.deleteFrom('tasks').where('expiresAt', '<', now).execute()
  await db.deleteFrom('usedLinks').where('expiresAt', '<', now).execute()
  await db.deleteFrom('runOutputs').where('endedAt', '<', endedBefore).execute()
}

const toStored = (run: Omit<RunRow, 'finishedAt' | 'ending' | 'result'>): StoredRun => ({
  ...run,
  detached: run.detached ? 1 : 0,
  kept: run.kept ? 1 : 0,
  finishedAt: null,
  ending: null,
  result: null,
})

export const toRow = (stored: StoredRun): RunRow => ({
  ...stored,
  envNames: stored.envNames ?? '[]',
  detached: stored.detached === 1,
  kept: stored.kept === 1,
  ending: stored.ending === null ? null : (JSON.parse(stored.ending) as Ending),
  result: stored.result === null ? null : (JSON.parse(stored.result) as RunResult),
})

const toStoredOutput = (runId: string, endedAt: string, { stdout, stderr }: KeptOutput): StoredOutput => ({
  runId,
  stdoutHead: stdout.head,
  stdoutOmittedBytes: stdout.omittedBytes,
  stdoutTail: stdout.tail,
  stderrHead: stderr.head,
  stderrOmittedBytes: stderr.omittedBytes,
  stderrTail: stderr.tail,
  endedAt,
})

const toOutput = (stored: StoredOutput): KeptOutput => ({
  stdout: { head: stored.stdoutHead, omittedBytes: stored.stdoutOmittedBytes, tail: stored.stdoutTail },
  stderr: { head: stored.stderrHead, omittedBytes: stored.stderrOmittedBytes, tail: stored.stderrTail },
})
