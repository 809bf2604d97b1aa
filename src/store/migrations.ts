import { existsSync } from 'node:fs'
import { type Kysely, sql } from 'kysely'
import { StartRefused } from '../base/errors.ts'
import { addNetworkSecrets } from './network-secrets.ts'
import { addPackageLayers } from './package-layers.ts'
import { addSandboxPorts } from './sandbox-ports.ts'
import { addSandboxes } from './sandboxes.ts'
import { keepBefore, keptPath } from './sqlite-backup.ts'
import { addAdmin } from './steps/admin.ts'
import { addAudit } from './steps/audit.ts'
import { addExecutions } from './steps/executions.ts'
import { addRefusedCalls } from './steps/refused-calls.ts'
import { addRunImages } from './steps/run-images.ts'
import { addRuntimeTools } from './steps/runtime-tools.ts'
import { addSearch } from './steps/search.ts'
import { addStorage } from './steps/storage.ts'
import {
  addUpstreamCredentials,
  addUpstreamPolicies,
  addUpstreamSearch,
  addUpstreams,
  addUpstreamTransports,
} from './steps/upstreams.ts'
import { addUsedLinks } from './steps/used-links.ts'
import { addDeliveriesByOrg } from './steps/webhooks.ts'
import type { Tables } from './tables.ts'
import { addUpstreamInstallations, addUpstreamInstallers, addUpstreamPrograms } from './upstream-sandboxes.ts'

type Step = (db: Kysely<Tables>) => Promise<void>

/** The migration steps, in order. A released step is never edited; each change is a new step. */
const steps: readonly Step[] = [
  createFirstTables,
  addKeySecrets,
  addLaterAnswers,
  addThreadLocks,
  addHiddenTools,
  addAudit,
  addAdmin,
  addUsedLinks,
  addExecutions,
  addStorage,
  addRunImages,
  addDeliveriesByOrg,
  addSearch,
  addRefusedCalls,
  addUpstreams,
  addUpstreamCredentials,
  addUpstreamPolicies,
  addUpstreamTransports,
  addSandboxes,
  addRuntimeTools,
  addNetworkSecrets,
  addSandboxPorts,
  addUpstreamSearch,
  addUpstreamPrograms,
  addUpstreamInstallers,
  addPackageLayers,
  addUpstreamInstallations,
]

export const newestVersion = steps.length

/**
 * Migrates the database to a version, in one transaction. Before that, a database with another version is copied.
 * @param path of the database.
 * @throws StartRefused if a newer version of the product has written it; names the copy that the upgrade made.
 */
export async function migrate(db: Kysely<Tables>, path: string, target: number = newestVersion): Promise<void> {
  await db.schema
    .createTable('schemaVersion')
    .ifNotExists()
    .addColumn('id', 'integer', (column) => column.primaryKey())
    .addColumn('version', 'integer', (column) => column.notNull())
    .execute()
  await db
    .insertInto('schemaVersion')
    .values({ id: 1, version: 0 })
    .onConflict((conflict) => conflict.column('id').doNothing())
    .execute()

  const { version: before } = await db.selectFrom('schemaVersion').select('version').executeTakeFirstOrThrow()
  if (before > 0 && before < target) await keepBefore(path, before)

  await db.transaction().execute(async (transaction) => {
    // The first statement is a write, which takes the lock: if two processes start at once, the second waits here.
    await transaction.updateTable('schemaVersion').set({ version: sql`version` }).execute()
    const { version } = await transaction.selectFrom('schemaVersion').select('version').executeTakeFirstOrThrow()
    if (version > target) throw refusedDowngrade(path, version, target)
    for (const step of steps.slice(version, target)) await step(transaction)
    await transaction.updateTable('schemaVersion').set({ version: target }).execute()
  })
}

function refusedDowngrade(path: string, version: number, target: number): StartRefused {
  const kept = keptPath(path, target)
  return new StartRefused(
    `The database was written by a newer version (its schema is ${version}, this version knows ${target}).`,
    existsSync(kept)
      ? `Start the newer version again. To go back and lose what was written since the upgrade, replace the database with the backup that the upgrade made: rm -f ${path}-wal ${path}-shm && mv ${kept} ${path}`
      : 'Start the newer version again, or restore a backup that was made before the upgrade.',
  )
}

async function createFirstTables(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .createTable('orgs')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .execute()

  await db.schema
    .createTable('keys')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('profile', 'text', (column) => column.notNull())
    .addColumn('secretHash', 'text')
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addColumn('revokedAt', 'text')
    .execute()
  await db.schema.createIndex('keysBySecretHash').unique().on('keys').column('secretHash').execute()
  await db.schema.createIndex('keysByOrg').on('keys').column('orgId').execute()

  await db.schema
    .createTable('profiles')
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('revision', 'text', (column) => column.notNull())
    .addColumn('definition', 'text', (column) => column.notNull())
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('profilesPrimary', ['name', 'revision'])
    .execute()

  await db.schema
    .createTable('threads')
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('id', 'text', (column) => column.notNull())
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addColumn('lastUsedAt', 'text', (column) => column.notNull())
    .addColumn('lockedBy', 'text')
    .addColumn('lockedUntil', 'text')
    .addColumn('fence', 'integer', (column) => column.notNull())
    .addPrimaryKeyConstraint('threadsPrimary', ['orgId', 'id'])
    .execute()

  await createRuns(db)
}

async function addKeySecrets(db: Kysely<Tables>): Promise<void> {
  await db.schema.alterTable('keys').addColumn('prefix', 'text').execute()
  await db.schema.alterTable('keys').addColumn('retiredAt', 'text').execute()
  await db.schema.createIndex('orgsByName').unique().on('orgs').column('name').execute()
  await db.schema
    .createIndex('keysNotRetired')
    .on('keys')
    .column('revokedAt')
    .where(sql.ref('revoked_at'), 'is not', null)
    .where(sql.ref('retired_at'), 'is', null)
    .execute()
}

/** Adds the output of runs, idempotency records, tasks and secrets. */
async function addLaterAnswers(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .alterTable('runs')
    .addColumn('kept', 'integer', (column) => column.notNull().defaultTo(0))
    .execute()
  await db.schema
    .createTable('runOutputs')
    .addColumn('runId', 'text', (column) => column.primaryKey().references('runs.id'))
    .addColumn('stdoutHead', 'blob', (column) => column.notNull())
    .addColumn('stdoutOmittedBytes', 'bigint', (column) => column.notNull())
    .addColumn('stdoutTail', 'blob', (column) => column.notNull())
    .addColumn('stderrHead', 'blob', (column) => column.notNull())
    .addColumn('stderrOmittedBytes', 'bigint', (column) => column.notNull())
    .addColumn('stderrTail', 'blob', (column) => column.notNull())
    .addColumn('endedAt', 'text', (column) => column.notNull())
    .execute()
  await db.schema.createIndex('runOutputsByEnd').on('runOutputs').column('endedAt').execute()

  await db.schema
    .createTable('claims')
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('keyId', 'text', (column) => column.notNull().references('keys.id'))
    .addColumn('idempotencyKey', 'text', (column) => column.notNull())
    .addColumn('requestHash', 'text', (column) => column.notNull())
    .addColumn('runId', 'text', (column) => column.notNull().references('runs.id'))
    .addColumn('expiresAt', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('claimsPrimary', ['orgId', 'keyId', 'idempotencyKey'])
    .execute()
  await db.schema.createIndex('claimsByRun').on('claims').column('runId').execute()

  await db.schema
    .createTable('tasks')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('keyId', 'text', (column) => column.notNull().references('keys.id'))
    .addColumn('runId', 'text', (column) => column.references('runs.id'))
    .addColumn('frontId', 'text', (column) => column.notNull())
    .addColumn('status', 'text', (column) => column.notNull())
    .addColumn('outcome', 'text')
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addColumn('updatedAt', 'text', (column) => column.notNull())
    .addColumn('expiresAt', 'text', (column) => column.notNull())
    .execute()
  await db.schema
    .createTable('secrets')
    .addColumn('name', 'text', (column) => column.primaryKey())
    .addColumn('value', 'text', (column) => column.notNull())
    .execute()
}

async function addThreadLocks(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .createIndex('threadsLocked')
    .on('threads')
    .column('lockedBy')
    .where(sql.ref('locked_by'), 'is not', null)
    .execute()
}

/** Adds the tools that are hidden from organizations. */
async function addHiddenTools(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .createTable('hiddenTools')
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('tool', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('hiddenToolsPrimary', ['orgId', 'tool'])
    .execute()
}

async function createRuns(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .createTable('runs')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('keyId', 'text', (column) => column.notNull().references('keys.id'))
    .addColumn('profile', 'text', (column) => column.notNull())
    .addColumn('profileRevision', 'text', (column) => column.notNull())
    .addColumn('language', 'text', (column) => column.notNull())
    .addColumn('codeHash', 'text', (column) => column.notNull())
    .addColumn('codeBytes', 'integer', (column) => column.notNull())
    .addColumn('metadata', 'text')
    .addColumn('runnerId', 'text', (column) => column.notNull())
    // 64 bits, since an epoch can be a time in milliseconds.
    .addColumn('epoch', 'bigint', (column) => column.notNull())
    .addColumn('detached', 'integer', (column) => column.notNull())
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addColumn('finishedAt', 'text')
    .addColumn('ending', 'text')
    .addColumn('result', 'text')
    .addForeignKeyConstraint('runsProfile', ['profile', 'profileRevision'], 'profiles', ['name', 'revision'])
    .execute()
  await db.schema
    .createIndex('runsUnfinished')
    .on('runs')
    .column('createdAt')
    .where(sql.ref('finished_at'), 'is', null)
    .execute()
  await db.schema.createIndex('runsByOrg').on('runs').columns(['orgId', 'createdAt']).execute()
}
