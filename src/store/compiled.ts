import type { Compilable, CompiledQuery, Kysely } from 'kysely'
import type { Tables } from './tables.ts'

/** A statement of the hot path. It is compiled once, since compiling takes most of the time of a statement. */
export class Compiled<Row> {
  readonly #query: CompiledQuery<Row>

  constructor(query: Compilable<Row>) {
    this.#query = query.compile()
  }

  /** Runs the statement. @param db a transaction, or the database. @param parameters in the order of the text. */
  async rows(db: Pick<Kysely<Tables>, 'executeQuery'>, parameters: readonly unknown[]): Promise<Row[]> {
    return (await db.executeQuery<Row>({ ...this.#query, parameters })).rows
  }
}
