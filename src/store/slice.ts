/**
 * The result of a search in a bounded number of rows. A search returns after `scannedRowsMax` rows, even if few of them
 * match, so that it does not block the event loop. The caller decides whether to continue.
 */
export interface Slice<Row, Position> {
  rows: Row[]
  /** Position of the last scanned row if more rows can match; `undefined` if the search is complete. */
  resumeAfter: Position | undefined
}

/** Maximum number of rows that one search scans, which takes a few milliseconds. */
export const scannedRowsMax = 1_000
