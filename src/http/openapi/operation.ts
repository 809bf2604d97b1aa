import type { TSchema } from 'typebox'
import type { RefusalCode } from '../../base/errors.ts'

/** Bytes or events instead of JSON. */
export interface Raw {
  mediaType: string
}

/** What one method does at one path, for those who call it. */
export interface Operation {
  /** Unique; clients name their functions after it. */
  id: string
  /** A sentence without its full stop. */
  summary: string
  /** Whose secret it takes. */
  by: 'key' | 'admin token' | 'nobody'
  group: 'Execute' | 'Executions' | 'Files' | 'Threads' | 'Volumes' | 'Administration' | 'Server' | 'MCP'
  /** Meaning of each word of the query. */
  query?: Readonly<Record<string, string>>
  body?: TSchema | Raw
  /** Body of each status of success; `null` where there is none. */
  answers: Readonly<Record<number, TSchema | Raw | null>>
  /** What it may be refused with, besides what every one is. */
  refusals: readonly RefusalCode[]
}

export const isRaw = (body: TSchema | Raw): body is Raw => 'mediaType' in body
