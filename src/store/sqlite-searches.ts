import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  type QueryResult,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from 'kysely'

/** TypeScript in the source tree, JavaScript in packages. */
const searcher = new URL(`./sqlite-searcher${extname(import.meta.filename)}`, import.meta.url)

/** A query, as the worker thread receives it. */
export interface ReadQuestion {
  number: number
  text: string
  parameters: readonly unknown[]
}

/** The rows, or the error with the result code of SQLite. */
export type ReadAnswer =
  | { number: number; rows: Record<string, unknown>[] }
  | { number: number; message: string; errcode: number | undefined }

interface Waiting {
  resolve(rows: Record<string, unknown>[]): void
  reject(error: Error): void
}

/**
 * A second connection to the database, for searches. It runs in a worker thread, so that a search blocks neither the event
 * loop nor the statements of runs. It sees everything that was committed before the query. The thread starts with the
 * first query, and again after a failure.
 */
export class ReadOnlyConnection implements DatabaseConnection {
  readonly #path: string
  readonly #busyTimeoutMs: number
  readonly #explain: (error: unknown) => unknown
  readonly #waiting = new Map<number, Waiting>()
  #worker: Worker | undefined
  #queries = 0

  /**
   * @param busyTimeoutMs time that a query waits for another process.
   * @param explain returns the error that the caller receives instead.
   */
  constructor(path: string, busyTimeoutMs: number, explain: (error: unknown) => unknown) {
    this.#path = path
    this.#busyTimeoutMs = busyTimeoutMs
    this.#explain = explain
  }

  async executeQuery<Row>({ sql, parameters }: CompiledQuery): Promise<QueryResult<Row>> {
    this.#worker ??= this.#start()
    const worker = this.#worker
    const number = ++this.#queries
    try {
      const rows = await new Promise<Record<string, unknown>[]>((resolve, reject) => {
        this.#waiting.set(number, { resolve, reject })
        worker.ref()
        worker.postMessage({ number, text: sql, parameters } satisfies ReadQuestion)
      })
      return { rows: rows as Row[] }
    } catch (error) {
      throw this.#explain(error)
    } finally {
      if (this.#waiting.size === 0) worker.unref()
    }
  }

  // biome-ignore lint/correctness/useYield: Kysely requires it, and nothing streams.
  async *streamQuery(): AsyncGenerator<never, void, undefined> {
    throw new Error('searches are not streamed')
  }

  /** Ends the thread; queries that wait fail. */
  async close(): Promise<void> {
    await this.#worker?.terminate()
  }

  #start(): Worker {
    const workerData = { path: this.#path, busyTimeoutMs: this.#busyTimeoutMs }
    const worker = new Worker(searcher, { workerData })
    worker.on('message', (answer: ReadAnswer) => {
      const waiting = this.#waiting.get(answer.number)
      this.#waiting.delete(answer.number)
      if ('rows' in answer) waiting?.resolve(answer.rows)
      else waiting?.reject(Object.assign(new Error(answer.message), { errcode: answer.errcode }))
    })
    worker.on('error', (error) => this.#lose(worker, error))
    worker.on('exit', () => this.#lose(worker, new Error('the thread that reads the database has ended')))
    return worker
  }

  #lose(worker: Worker, error: unknown): void {
    if (this.#worker === worker) this.#worker = undefined
    for (const { reject } of this.#waiting.values()) reject(error instanceof Error ? error : new Error(String(error)))
    this.#waiting.clear()
  }
}

/** Returns the dialect of Kysely that runs every query on one connection and allows no transactions. */
export const readOnlyDialect = (connection: ReadOnlyConnection): Dialect => ({
  createAdapter: () => new SqliteAdapter(),
  createDriver: () => driverOf(connection),
  createIntrospector: (db) => new SqliteIntrospector(db),
  createQueryCompiler: () => new SqliteQueryCompiler(),
})

const driverOf = (connection: ReadOnlyConnection): Driver => ({
  init: async () => {},
  acquireConnection: async () => connection,
  releaseConnection: async () => {},
  beginTransaction: noTransactions,
  commitTransaction: noTransactions,
  rollbackTransaction: noTransactions,
  destroy: () => connection.close(),
})

const noTransactions = async (): Promise<never> => {
  throw new Error('searches have no transactions')
}
