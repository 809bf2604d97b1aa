import { Refusal } from '../base/errors.ts'
import { refusalOfDatabase, visibleProblemAt } from './sqlite-errors.ts'

/** Called with the first cause when the database cannot be written, and with `undefined` when it can be written again. */
export type OnDiskProblem = (problem: string | undefined, cause: unknown) => void

/** Detects whether the disk accepts the writes of a database, from failed statements and by regular checks. */
export class DatabaseHealth {
  readonly #path: string
  readonly #onChange: OnDiskProblem
  #problem: string | undefined

  constructor(path: string, onChange: OnDiskProblem) {
    this.#path = path
    this.#onChange = onChange
  }

  /** The current problem, as it completes "The server cannot store data now: ..."; `undefined` if there is no problem. */
  get problem(): string | undefined {
    return this.#problem
  }

  /** Runs a statement. @throws Refusal `disk_unavailable` if the disk caused an error, `unavailable` if a lock did. */
  guard<T>(statement: () => T): T {
    try {
      return statement()
    } catch (error) {
      throw this.explain(error)
    }
  }

  /** Checks the disk, and tries a write if it has or had a problem. Does not reject for disk errors. */
  async check(write: () => Promise<void>): Promise<void> {
    const seen = visibleProblemAt(this.#path)
    if (seen === undefined && this.#problem === undefined) return
    try {
      await write()
      this.#set(seen, undefined)
    } catch (error) {
      if (!(this.explain(error) instanceof Refusal)) throw error
    }
  }

  /** Returns the refusal for an error of a statement, or the error itself. Remembers a problem of the disk. */
  explain(error: unknown): unknown {
    if (error instanceof Refusal) return error
    const refusal = refusalOfDatabase(error, this.#path)
    if (refusal?.code === 'disk_unavailable') this.#set(String(refusal.details.problem), error)
    return refusal ?? error
  }

  #set(problem: string | undefined, cause: unknown): void {
    const was = this.#problem
    this.#problem = problem
    if ((was === undefined) !== (problem === undefined)) this.#onChange(problem, cause)
  }
}
