import { Refusal } from '../base/errors.ts'
import { refusalOfDatabase, visibleProblemAt } from './sqlite-errors.ts'

/** Called when the database becomes unwritable, with the first cause, and when it can be written again. */
export type OnDiskProblem = (problem: string | undefined, cause: unknown) => void

/** Knows whether the disk accepts the writes of a database: from the statements that fail, and by looking. */
export class DatabaseHealth {
  readonly #path: string
  readonly #onChange: OnDiskProblem
  #problem: string | undefined

  constructor(path: string, onChange: OnDiskProblem) {
    this.#path = path
    this.#onChange = onChange
  }

  /** Completes "The server cannot store data now: ..."; `undefined` while the database can be written. */
  get problem(): string | undefined {
    return this.#problem
  }

  /** Runs a statement. @throws Refusal `disk_unavailable`, `unavailable` in place of what the disk or a lock caused. */
  guard<T>(statement: () => T): T {
    try {
      return statement()
    } catch (error) {
      throw this.#explained(error)
    }
  }

  /** Looks at the disk, and tries to write where it was or seems unwritable. Never rejects for a reason of the disk. */
  async check(write: () => Promise<void>): Promise<void> {
    const seen = visibleProblemAt(this.#path)
    if (seen === undefined && this.#problem === undefined) return
    try {
      await write()
      this.#set(seen, undefined)
    } catch (error) {
      if (!(this.#explained(error) instanceof Refusal)) throw error
    }
  }

  #explained(error: unknown): unknown {
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
