/** The worker thread of `ReadOnlyConnection`: runs one query after the other on its own read-only connection. */
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite'
import { parentPort, workerData } from 'node:worker_threads'
import type { ReadAnswer, ReadQuestion } from './sqlite-searches.ts'

/** Maximum number of prepared statements: filters make a few dozen texts. */
const statementsMax = 256

const { path, busyTimeoutMs } = workerData as { path: string; busyTimeoutMs: number }
const statements = new Map<string, StatementSync>()
let database: DatabaseSync | undefined

function read({ text, parameters }: ReadQuestion): Record<string, unknown>[] {
  database ??= new DatabaseSync(path, { readOnly: true, timeout: busyTimeoutMs })
  let statement = statements.get(text)
  if (statement === undefined) {
    if (statements.size >= statementsMax) statements.clear()
    statement = database.prepare(text)
    statements.set(text, statement)
  }
  return statement.all(...(parameters as SQLInputValue[]))
}

parentPort?.on('message', (question: ReadQuestion) => {
  let answer: ReadAnswer
  try {
    answer = { number: question.number, rows: read(question) }
  } catch (error) {
    const { message, errcode } = error as Error & { errcode?: number }
    answer = { number: question.number, message, errcode }
  }
  parentPort?.postMessage(answer)
})
