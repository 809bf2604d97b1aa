/**
 * What a search found in a bounded number of rows. A search looks at no more than that before it returns, however few of
 * them match, so that it never holds the event loop; the caller decides whether to continue.
 */
export interface Slice<Row, Position> {
  rows: Row[]
  /** The last row looked at, where the search stopped before the end and before it had found enough. */
  resumeAfter: Position | undefined
}

/** Rows looked at in one search: a few milliseconds. */
export const scannedRowsMax = 1_000
