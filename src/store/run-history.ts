/** Rows that belong to runs: search filters, stored code, and webhook deliveries. */
import type { ExecutionStatus } from '../base/execution-status.ts'
import type { Language } from '../base/run.ts'
import type { AfterRow } from './admin-rows.ts'
import type { Slice } from './slice.ts'
import type { RunRow } from './store.ts'

/** A webhook delivery: the ending of a run, sent to an address of the client. */
export interface DeliveryRow {
  /** ID of the event, the same in every attempt. */
  id: string
  runId: string
  orgId: string
  url: string
  /** Host of the URL, for the limit of attempts per host. */
  host: string
  /** `waiting` until the run ends, then `due`, then final. */
  status: 'waiting' | 'due' | 'delivered' | 'dead'
  attempts: number
  /** Time of the next attempt; `null` unless it is due. */
  dueAt: string | null
  /** Why the last attempt failed. */
  problem: string | null
  updatedAt: string
}

/** Rows that are written together with a run. */
export interface RunExtras {
  /** Stored as long as the row of the run; absent if code is not stored. */
  code?: Uint8Array | undefined
  /** `pendingMax` limits the pending deliveries of the organization, checked in the same transaction. */
  delivery?: (Pick<DeliveryRow, 'id' | 'url' | 'host'> & { pendingMax: number }) | undefined
}

export interface RunFilter {
  threadId?: string | undefined
  keyId?: string | undefined
  status?: ExecutionStatus | undefined
  language?: Language | undefined
  /** Exclusive. */
  createdAfter?: string | undefined
  /** Exclusive. */
  createdBefore?: string | undefined
  /** Each pair must match, as text. */
  metadata?: readonly (readonly [key: string, value: string])[] | undefined
}

/** Settings of an organization, as JSON: what is kept of its runs. */
export interface OrgSettingsRow {
  orgId: string
  settings: string
}

export interface HistoryRows {
  /** Lists matching runs, newest first. @param before the last run of the previous page, exclusive. */
  page(orgId: string, filter: RunFilter, before: AfterRow, limit: number): Promise<Slice<RunRow, AfterRow>>
  /** Returns the code of a run; it is stored only if the organization keeps code. */
  code(runId: string): Promise<Uint8Array | undefined>
  /**
   * Deletes up to `limit` ended runs of an organization that started before a time, with their rows.
   * @returns the number of deleted runs.
   */
  forget(orgId: string, createdBefore: string, limit: number): Promise<number>
}

export interface OrgSettingsRows {
  /** Returns the settings as JSON. */
  get(orgId: string): Promise<string | undefined>
  set(orgId: string, settings: string): Promise<void>
}

export interface DeliveryRows {
  get(runId: string): Promise<DeliveryRow | undefined>
  /** Lists deliveries that can be attempted now, longest due first, except for busy hosts and organizations. */
  due(
    now: string,
    busy: { busyHosts: readonly string[]; busyOrgs: readonly string[] },
    limit: number,
  ): Promise<DeliveryRow[]>
  /** Makes deliveries due at `now` whose time is after `latest`: they were written before the clock was set back. */
  advance(now: string, latest: string): Promise<void>
  /** Reserves a delivery for one attempt until `until`. @returns whether this call reserved it. */
  take(row: Pick<DeliveryRow, 'id' | 'dueAt'>, until: string): Promise<boolean>
  /** Writes the outcome of an attempt. */
  settle(
    id: string,
    changes: Pick<DeliveryRow, 'status' | 'attempts' | 'dueAt' | 'problem' | 'updatedAt'>,
  ): Promise<void>
  /** Counts the pending deliveries of an organization, up to `max`. */
  outstanding(orgId: string, max: number): Promise<number>
  /** Deletes the delivery of a run that was refused before it started. */
  drop(runId: string): Promise<void>
}
