import { closeSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite'
import {
  CamelCasePlugin,
  Kysely,
  type LogConfig,
  type SqliteDatabase,
  SqliteDialect,
  type SqliteStatement,
  sql,
} from 'kysely'
import { Refusal, StartRefused } from '../base/errors.ts'
import type { SlowCalls } from '../observe/slow-calls.ts'
import type { Rows } from './admin-store.ts'
import { adminTokens } from './admin-tokens.ts'
import { append, audit } from './audit.ts'
import type { DurableTransaction } from './durably.ts'
import { history, orgSettings } from './history.ts'
import { keys } from './keys.ts'
import { limits } from './limits.ts'
import { migrate, newestVersion } from './migrations.ts'
import { openNouns } from './nouns.ts'
import { orgs } from './orgs.ts'
import { profiles } from './profiles.ts'
import { reseal } from './reseal.ts'
import { forget, runs } from './runs.ts'
import { secrets } from './secrets.ts'
import { Checkpoints } from './sqlite-checkpoints.ts'
import { refusalOfDatabase } from './sqlite-errors.ts'
import { DatabaseHealth, type OnDiskProblem } from './sqlite-health.ts'
import { WriteAheadLog } from './sqlite-log.ts'
import { ReadOnlyConnection, readOnlyDialect } from './sqlite-searches.ts'
import { sizeOf } from './sqlite-size.ts'
import { upstreamSearch } from './sqlite-upstreams.ts'
import type { Store } from './store.ts'
import { storedProfiles } from './stored-profiles.ts'
import { subjects } from './subjects.ts'
import type { Tables } from './tables.ts'
import { tasks } from './tasks.ts'
import { threads } from './threads.ts'
import { upstreams, upstreamUsage } from './upstreams.ts'
import { countRun, usage } from './usage.ts'
import { volumes } from './volumes.ts'
import { deliveries } from './webhooks.ts'

/**
 * Number of pages (4 KiB each) in the write-ahead log at which they are moved to the database. With 32 MiB this occurs once
 * in a thousand runs with little output, with SQLite's default once in a hundred. In return the log file is larger, and the
 * first start after a crash takes a fraction of a second longer. https://www.sqlite.org/wal.html
 */
const checkpointPages = 8_192

/** Number of pages at which a commit moves them itself and waits for the disk, because the thread for it is late. */
const lateCheckpointPages = 8 * checkpointPages

/** Time that a writer waits for the write of another process. */
const busyTimeoutMs = 10_000

/** Returns the path of the database in a home directory. */
export const databasePath = (frontHome: string): string => join(frontHome, 'glovebox.db')

export interface StoreOptions {
  /** Called when the disk stops accepting writes, and when it accepts them again. */
  onDiskProblem?: OnDiskProblem
  /** Counts every statement. */
  queries?: Pick<SlowCalls, 'count'>
  /** Version of the schema that the database gets; by default the newest. */
  schema?: number
  /** Moves pages out of the log in a thread, for a process that serves; called when that begins to fail. */
  onCheckpointError?: (problem: string) => void
}

/**
 * Opens the database at `path`, creates it if it is missing, and migrates it to a version of the schema.
 * @throws StartRefused if the file is not a database, is damaged, or was written by a newer version.
 */
export async function openStore(
  path: string,
  { onDiskProblem = () => {}, queries, schema = newestVersion, onCheckpointError }: StoreOptions = {},
): Promise<Store> {
  const health = new DatabaseHealth(path, onDiskProblem)
  const database = openDatabase(path, health, onCheckpointError ? lateCheckpointPages : checkpointPages)
  const db = new Kysely<Tables>({
    dialect: new SqliteDialect({ database }),
    plugins: [new CamelCasePlugin()],
    ...(queries && { log: countIn(queries) }),
  })
  try {
    await migrate(db, path, schema)
  } catch (error) {
    await db.destroy()
    if (error instanceof StartRefused) throw error
    throw unusable(path, error)
  }
  // Searches have a connection of their own, so that no run waits for one.
  const searches = new Kysely<Tables>({
    dialect: readOnlyDialect(new ReadOnlyConnection(path, busyTimeoutMs, (error) => health.explain(error))),
    plugins: [new CamelCasePlugin()],
  })
  const log = new WriteAheadLog(path)
  const sync = () => log.sync().catch((error: unknown) => health.guard(() => fail(error)))
  const durably = durablyIn(db, sync)
  const checkpoints = onCheckpointError && new Checkpoints(path, checkpointPages, onCheckpointError)
  return {
    ...changeable(db),
    audited: (line, work) =>
      durably(async (transaction) => {
        await append(transaction, line)
        return work(changeable(transaction))
      }),
    together: (work) =>
      durably((transaction) => {
        const rows = changeable(transaction)
        return work({
          ...rows,
          profiles: profiles(transaction),
          audited: async (line, act) => {
            await append(transaction, line)
            return act(rows)
          },
        })
      }),
    sync,
    size: () => sizeOf(db, path),
    version: () => database.version(),
    get diskProblem() {
      return health.problem
    },
    checkDisk: () => health.check(() => writeNothing(db)),
    reseal: (again) => durably((transaction) => reseal(transaction, again)),
    profiles: profiles(db),
    threads: threads(db),
    runs: runs(db, durably, { append, countRun, room: async (bytes) => checkpoints?.room(bytes) }),
    history: history(db, searches),
    deliveries: deliveries(db),
    tasks: tasks(db, durably),
    usage: usage(db),
    upstreamUsage: upstreamUsage(db),
    upstreamSearch: upstreamSearch(searches),
    audit: audit(db, searches, append),
    subjects: withoutTrace(db, subjects(db, searches, durably, append)),
    forget: (now, endedBefore) => forget(db, now, endedBefore),
    close: async () => {
      await checkpoints?.close()
      await searches.destroy()
      await db.destroy()
      await log.close()
    },
  }
}

/** Reports the text of a statement, which has placeholders instead of parameters. */
const countIn =
  (queries: Pick<SlowCalls, 'count'>): LogConfig =>
  ({ level, query, queryDurationMillis }) =>
    queries.count(queryDurationMillis, level === 'error', () => ({ what: query.sql.slice(0, statementMax) }))

/** Characters of a statement in a report. */
const statementMax = 1_000

function fail(error: unknown): never {
  throw error
}

/** Writes pages without changing the content: inserts a row and deletes it, since SQLite skips updates to equal values. */
async function writeNothing(db: Kysely<Tables>): Promise<void> {
  const probe = { id: 'probe', expiresAt: '' }
  await db.transaction().execute(async (transaction) => {
    await transaction.insertInto('usedLinks').values(probe).execute()
    await transaction.deleteFrom('usedLinks').where('id', '=', probe.id).execute()
  })
}

/** Returns access to the rows that administrative actions change. @param db a transaction, or the database. */
const changeable = (db: Kysely<Tables>): Rows => ({
  ...openNouns(db),
  orgs: orgs(db),
  keys: keys(db),
  storedProfiles: storedProfiles(db),
  limits: limits(db),
  adminTokens: adminTokens(db),
  orgSettings: orgSettings(db),
  secrets: secrets(db),
  volumes: volumes(db),
  upstreams: upstreams(db),
})

/** Truncates the write-ahead log after each erasure, since it can contain pages with the erased data. */
const withoutTrace = (db: Kysely<Tables>, rows: Store['subjects']): Store['subjects'] => ({
  ...rows,
  erase: async (...args) => {
    const erased = await rows.erase(...args)
    await sql`pragma wal_checkpoint(truncate)`.execute(db)
    return erased
  },
})

/**
 * Runs durable transactions: each is committed, and then the log is synced in another thread, so that a slow disk does not
 * block the event loop. The connection is held until then: other statements see a committed row only when the caller that
 * wrote it continues. If the sync fails, the caller gets the error, and the transaction may remain.
 */
const durablyIn =
  (db: Kysely<Tables>, sync: () => Promise<void>): DurableTransaction =>
  (work) =>
    db.connection().execute(async (connection) => {
      const result = await connection.transaction().execute(work)
      await sync()
      return result
    })

function openDatabase(path: string, health: DatabaseHealth, autocheckpointPages: number): NodeSqlite {
  let database: DatabaseSync | undefined
  try {
    // Created with a private mode before SQLite opens it; SQLite gives its other files the same mode.
    closeSync(openSync(path, 'a', 0o600))
    database = new DatabaseSync(path, { timeout: busyTimeoutMs, enableForeignKeyConstraints: true })
    // When the process is killed, nothing is lost. A power cut can lose the last writes but does not damage the file.
    // https://www.sqlite.org/pragma.html#pragma_synchronous
    database.exec('pragma journal_mode = wal; pragma synchronous = normal; pragma trusted_schema = off')
    // Overwrites deleted data, so that no free page contains erased data: see `Store.subjects`.
    database.exec('pragma secure_delete = on')
    database.exec(`pragma wal_autocheckpoint = ${autocheckpointPages}`)
    return new NodeSqlite(database, health)
  } catch (error) {
    database?.close()
    throw unusable(path, error)
  }
}

function unusable(path: string, cause: unknown): StartRefused {
  const explained = cause instanceof Refusal ? cause : refusalOfDatabase(cause, path)
  const { problem, remedy } =
    explained === undefined ? notADatabase(cause) : explained.code === 'disk_unavailable' ? onDisk(explained) : locked
  const refusal = new StartRefused(`The database ${path} cannot be used: ${problem}.`, remedy)
  refusal.cause = explained ?? cause
  return refusal
}

const notADatabase = (cause: unknown) => ({
  problem: cause instanceof Error ? cause.message : String(cause),
  remedy:
    'See that its directory exists and belongs to this process, and that the file is whole; if not, restore a backup.',
})

const onDisk = ({ details: { problem } }: Refusal) => ({
  problem: String(problem),
  remedy: 'Free space on the disk, or repair it, and try again.',
})

const locked = {
  problem: 'another process keeps it locked',
  remedy: 'Another process is writing to it without end: stop that one.',
}

/**
 * Rows that this connection has written, and a number that changes with the commits of all others.
 * https://www.sqlite.org/pragma.html#pragma_data_version
 */
const versionQuery = 'select total_changes() as own, data_version as others from pragma_data_version'

/** Adapts `node:sqlite` to the interface of Kysely's SQLite dialect. Prepares each statement once. */
class NodeSqlite implements SqliteDatabase {
  /** Maximum number of prepared statements. There are a few dozen; the limit protects against texts that vary. */
  static readonly #maxStatements = 256
  readonly #database: DatabaseSync
  readonly #health: DatabaseHealth
  readonly #statements = new Map<string, SqliteStatement>()
  #version: StatementSync | undefined

  constructor(database: DatabaseSync, health: DatabaseHealth) {
    this.#database = database
    this.#health = health
  }

  prepare(text: string): SqliteStatement {
    // SQLite rolls back a transaction after some disk errors, so there may be none: https://www.sqlite.org/lang_transaction.html
    if (text === 'rollback' && !this.#database.isTransaction) return nothing
    const known = this.#statements.get(text)
    if (known) return known
    const statement = toKyselyStatement(
      this.#health.guard(() => this.#database.prepare(text)),
      this.#health,
    )
    if (this.#statements.size >= NodeSqlite.#maxStatements) this.#statements.clear()
    this.#statements.set(text, statement)
    return statement
  }

  /** Implements `Store.version`. A transaction does not see what other processes write meanwhile. */
  version(): string | undefined {
    if (this.#database.isTransaction) return undefined
    return this.#health.guard(() => {
      this.#version ??= this.#database.prepare(versionQuery)
      const { own, others } = this.#version.get() as { own: number; others: number }
      return `${own} ${others}`
    })
  }

  close(): void {
    this.#statements.clear()
    this.#database.close()
  }
}

const nothing: SqliteStatement = {
  reader: false,
  all: () => [],
  run: () => ({ changes: 0, lastInsertRowid: 0 }),
  iterate: () => [].values(),
}

function toKyselyStatement(statement: StatementSync, health: DatabaseHealth): SqliteStatement {
  const values = (parameters: readonly unknown[]) => parameters as SQLInputValue[]
  return {
    reader: statement.columns().length > 0,
    all: (parameters) => health.guard(() => statement.all(...values(parameters))),
    run: (parameters) => health.guard(() => statement.run(...values(parameters))),
    iterate: (parameters) => health.guard(() => statement.all(...values(parameters))).values(),
  }
}
