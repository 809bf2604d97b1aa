import type { KeyRow, OrgRow, ProfileRow, RunRow, ThreadRow } from './store.ts'

/** A run as columns: JSON is text and a flag is 0 or 1, the same in every database. */
export type StoredRun = Omit<RunRow, 'detached' | 'ending' | 'result'> & {
  detached: number
  ending: string | null
  result: string | null
}

/** Names in code are camelCase, columns are their snake_case. */
export interface Tables {
  schemaVersion: { id: number; version: number }
  orgs: OrgRow
  keys: KeyRow
  profiles: ProfileRow
  threads: ThreadRow
  runs: StoredRun
}
