import type { Transaction } from 'kysely'
import type { Tables } from './tables.ts'

/** Runs a transaction that survives a power cut once this resolves. Each database does this in its own way. */
export type DurableTransaction = <Result>(
  work: (transaction: Transaction<Tables>) => Promise<Result>,
) => Promise<Result>
