import type { Transaction } from 'kysely'
import type { Tables } from './tables.ts'

/** Runs one transaction that survives a power cut once this resolves. How depends on the database. */
export type DurableTransaction = <Result>(
  work: (transaction: Transaction<Tables>) => Promise<Result>,
) => Promise<Result>
