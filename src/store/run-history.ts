/** Rows that stand beside runs: what they are searched by, what is kept of them, and whom their ending is told. */
import type { ExecutionStatus } from '../base/execution-status.ts'
import type { Language } from '../base/run.ts'
import type { AfterRow } from './admin-rows.ts'
import type { RunRow } from './store.ts'

/** How the answer of a run reaches whoever asked for it. */
export type DeliveryMode = 'inline' | 'streaming' | 'webhook'

/** An ending that is told to an address of the client's. */
export interface DeliveryRow {
  /** Of the event, the same in every try. */
  id: string
  runId: string
  orgId: string
  url: string
  /** Where it goes, for counting who waits for whom. */
  host: string
  /** `waiting` for the run to end; `due`; or settled. */
  status: 'waiting' | 'due' | 'delivered' | 'dead'
  attempts: number
  /** Of a due one when it may be tried next. */
  dueAt: string | null
  /** Why the last try failed. */
  problem: string | null
  updatedAt: string
}

/** What is written with the row of a run. */
export interface RunExtras {
  /** Kept for as long as the row is. */
  code?: Uint8Array | undefined
  delivery?: Pick<DeliveryRow, 'id' | 'url' | 'host'> | undefined
}

export interface RunFilter {
  threadId?: string | undefined
  status?: ExecutionStatus | undefined
  language?: Language | undefined
  /** Exclusive. */
  createdAfter?: string | undefined
  /** Exclusive. */
  createdBefore?: string | undefined
  /** Each must be there, as text. */
  metadata?: readonly (readonly [key: string, value: string])[] | undefined
}

/** Of an org, as JSON: what its runs leave in the history. */
export interface OrgSettingsRow {
  orgId: string
  settings: string
}

export interface HistoryRows {
  /** Newest first. @param before the run that came last, exclusive. */
  page(orgId: string, filter: RunFilter, before: AfterRow, limit: number): Promise<RunRow[]>
  /** What an org that keeps it ran. */
  code(runId: string): Promise<Uint8Array | undefined>
  /** Deletes so many ended runs of an org at most that began before a time, with all beside them. @returns how many. */
  forget(orgId: string, createdBefore: string, limit: number): Promise<number>
}

export interface OrgSettingsRows {
  /** As JSON. */
  get(orgId: string): Promise<string | undefined>
  set(orgId: string, settings: string): Promise<void>
}

export interface DeliveryRows {
  get(runId: string): Promise<DeliveryRow | undefined>
  /** Those that may be tried now, longest due first, but for busy hosts and orgs. */
  due(
    now: string,
    busy: { busyHosts: readonly string[]; busyOrgs: readonly string[] },
    limit: number,
  ): Promise<DeliveryRow[]>
  /** Takes one for a try: nobody else does before `until`. @returns whether this call did. */
  take(row: Pick<DeliveryRow, 'id' | 'dueAt'>, until: string): Promise<boolean>
  /** Writes what came of a try. */
  settle(
    id: string,
    changes: Pick<DeliveryRow, 'status' | 'attempts' | 'dueAt' | 'problem' | 'updatedAt'>,
  ): Promise<void>
  /** How many of an org wait or are due; counting ends at `max`. */
  outstanding(orgId: string, max: number): Promise<number>
  /** Of a run that never started, and was refused. */
  drop(runId: string): Promise<void>
}
