import type { Transaction } from 'kysely'
import type { Tables } from './tables.ts'

/** Runs a transaction. When it resolves, the transaction survives a power cut. Each database implements it differently. */
export type DurableTransaction = <Result>(
  work: (transaction: Transaction<Tables>) => Promise<Result>,
) => Promise<Result>
