import { type ExpressionBuilder, type Kysely, sql } from 'kysely'
import { Compiled } from './compiled.ts'
import { requireSandboxRoom } from './sandbox-limits.ts'
import type { SandboxRow, SandboxRows } from './sandbox-rows.ts'
import { quotaBytesOf, requireStorageRoom } from './storage-limit.ts'
import type { Tables } from './tables.ts'

declare module './tables.ts' {
  interface Tables {
    sandboxes: SandboxRow
  }
}

/** Adds the named sandboxes, and the time that they ran to the usage. */
export async function addSandboxes(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .createTable('sandboxes')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('namespace', 'text', (column) => column.notNull())
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('keyId', 'text', (column) => column.notNull().references('keys.id'))
    .addColumn('state', 'text', (column) => column.notNull())
    .addColumn('reason', 'text')
    .addColumn('image', 'text')
    .addColumn('memoryBytes', 'bigint', (column) => column.notNull())
    .addColumn('quotaBytes', 'bigint', (column) => column.notNull())
    .addColumn('quotaFiles', 'bigint', (column) => column.notNull())
    .addColumn('settings', 'text', (column) => column.notNull())
    .addColumn('env', 'text')
    .addColumn('metadata', 'text', (column) => column.notNull())
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addColumn('startedAt', 'text')
    .addColumn('endedAt', 'text')
    .addColumn('lastUsedAt', 'text', (column) => column.notNull())
    .addColumn('expiresAt', 'text')
    .addColumn('restarts', 'integer', (column) => column.notNull())
    .addUniqueConstraint('sandboxesByName', ['orgId', 'namespace', 'name'])
    .execute()
  await db.schema.createIndex('sandboxesByState').on('sandboxes').column('state').execute()
  await db.schema.alterTable('keys').addColumn('namespaces', 'text').execute()
  await db.schema
    .alterTable('usage')
    .addColumn('sandboxMs', 'bigint', (column) => column.notNull().defaultTo(0))
    .execute()
}

const byName = new Compiled((db) =>
  db.selectFrom('sandboxes').selectAll().where('orgId', '=', '').where('namespace', '=', '').where('name', '=', ''),
)

const byId = new Compiled((db) => db.selectFrom('sandboxes').selectAll().where('id', '=', ''))

export const sandboxes = (db: Kysely<Tables>): SandboxRows => ({
  async create(row) {
    const inserted = await db
      .insertInto('sandboxes')
      .values(row)
      .onConflict((conflict) => conflict.columns(['orgId', 'namespace', 'name']).doNothing())
      .executeTakeFirst()
    if (inserted.numInsertedOrUpdatedRows !== 1n) return false
    await requireStorageRoom(db, row.orgId)
    await requireSandboxRoom(db, row)
    return true
  },

  get: (orgId, namespace, name) => byName.row(db, [orgId, namespace, name]),

  byId: (id) => byId.row(db, [id]),

  page(orgId, { namespaces, states }, after, limit) {
    const later = (where: ExpressionBuilder<Tables, 'sandboxes'>) =>
      where.or([
        where('namespace', '>', after.namespace),
        where.and([where('namespace', '=', after.namespace), where('name', '>', after.name)]),
      ])
    let query = db.selectFrom('sandboxes').selectAll().where('orgId', '=', orgId).where(later)
    if (namespaces !== null) query = query.where('namespace', 'in', [...namespaces])
    if (states !== null) query = query.where('state', 'in', [...states])
    return query.orderBy('namespace').orderBy('name').limit(limit).execute()
  },

  inStates: (states) =>
    db
      .selectFrom('sandboxes')
      .selectAll()
      .where('state', 'in', [...states])
      .execute(),

  async move(id, from, to, changes = {}) {
    const moved = await db
      .updateTable('sandboxes')
      .set({ ...changes, state: to })
      .where('id', '=', id)
      .where('state', 'in', [...from])
      .returningAll()
      .executeTakeFirst()
    if (moved === undefined) return false
    if (to === 'starting') await requireSandboxRoom(db, moved)
    return true
  },

  async update(id, changes) {
    const changed = await db
      .updateTable('sandboxes')
      .set(changes)
      .where('id', '=', id)
      .returning('orgId')
      .executeTakeFirst()
    if (changed && changes.quotaBytes !== undefined) await requireStorageRoom(db, changed.orgId)
  },

  async remove(id) {
    await db.deleteFrom('sandboxPorts').where('sandboxId', '=', id).execute()
    await db.deleteFrom('sandboxes').where('id', '=', id).execute()
  },

  quotaBytes: (orgId) => quotaBytesOf(db, 'sandboxes', orgId),

  async addUsage(day, runMs) {
    for (const { orgId, keyId, sandboxMs } of runMs) {
      await db
        .insertInto('usage')
        .values({ orgId, day, keyId, runs: 0, runMs: 0, cpuMs: 0, refused: 0, sandboxMs })
        .onConflict((conflict) =>
          conflict
            .columns(['orgId', 'day', 'keyId'])
            .doUpdateSet({ sandboxMs: sql<number>`usage.sandbox_ms + excluded.sandbox_ms` }),
        )
        .execute()
    }
  },
})
