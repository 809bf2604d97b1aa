import type { OutputLog } from './output-log.ts'

/** A front that reads the events of a run. */
export interface RunReader {
  runId: string
  outputLog: OutputLog
  afterSeq: number
  /** Output bytes that may still be sent. */
  windowBytes: number
  unsubscribe: () => void
}
