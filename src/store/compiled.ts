import type { Compilable, CompiledQuery, Kysely } from 'kysely'
import type { Tables } from './tables.ts'

/**
 * A statement that calls or frequent jobs run. It is compiled once in a process, since compiling takes most of the time of a
 * statement.
 */
export class Compiled<Row> {
  readonly #build: (db: Kysely<Tables>) => Compilable<Row>
  #query: CompiledQuery<Row> | undefined

  /** @param build returns the statement with any values; only its text is used. */
  constructor(build: (db: Kysely<Tables>) => Compilable<Row>) {
    this.#build = build
  }

  /** Runs the statement. @param db a transaction, or the database. @param parameters in the order of the text. */
  async rows(db: Kysely<Tables>, parameters: readonly unknown[]): Promise<Row[]> {
    this.#query ??= this.#build(db).compile()
    return (await db.executeQuery<Row>({ ...this.#query, parameters })).rows
  }

  /** As `rows`, for a statement that finds at most one row. */
  async row(db: Kysely<Tables>, parameters: readonly unknown[]): Promise<Row | undefined> {
    return (await this.rows(db, parameters))[0]
  }
}
