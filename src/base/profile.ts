import type { Language, Limits, Quota, Reuse } from './run.ts'

/** What runs of a profile may keep. */
export type Storage =
  | { kind: 'none' }
  /** A thread is made with this quota; it keeps the one it was made with. */
  | { kind: 'threads'; quota: Quota }

/** What a key may run: made from the configuration at start, the same for every run until the next start. */
export interface Profile {
  name: string
  /** Hash of everything below; a slot never serves two revisions. */
  revision: string
  languages: readonly Language[]
  /** Used when a call names none; one of `languages`. */
  defaultLanguage: Language
  timeoutDefaultMs: number
  timeoutMaxMs: number
  limits: Omit<Limits, 'timeoutMs'>
  /** Variables of every run; those of a call win over them. */
  env: Readonly<Record<string, string>>
  reuse: Reuse
  storage: Storage
}
