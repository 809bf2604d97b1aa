import type { Io } from './process-io.ts'

/**
 * Prints rows in aligned columns; the first row is the header. The last column is not padded, and a cell that is much
 * wider than the others of its column does not widen all rows.
 */
export function printTable(rows: readonly (readonly string[])[], { stdout }: Io): void {
  const widths = rows[0]!.map((_, column) => widthOf(rows.map((row) => row[column]!.length)))
  for (const row of rows) {
    const line = row.map((cell, column) => cell.padEnd(widths[column]!)).join('  ')
    stdout.write(`${line.trimEnd()}\n`)
  }
}

const maxColumnWidth = 48

const widthOf = (lengths: readonly number[]): number =>
  Math.max(...lengths.filter((length) => length <= maxColumnWidth))
