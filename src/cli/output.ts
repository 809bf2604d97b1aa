/** How commands print what they found: as a table for people, or as JSON for programs. */
import type { Command } from 'commander'
import type { ProcessIo } from './process-io.ts'

/**
 * Prints rows in aligned columns; the first row is the header. The last column is not padded, and a cell that is much
 * wider than the others of its column does not widen all rows.
 */
export function printTable(rows: readonly (readonly string[])[], { stdout }: ProcessIo): void {
  const widths = rows[0]!.map((_, column) => widthOf(rows.map((row) => row[column]!.length)))
  for (const row of rows) {
    const line = row.map((cell, column) => cell.padEnd(widths[column]!)).join('  ')
    stdout.write(`${line.trimEnd()}\n`)
  }
}

const maxColumnWidth = 48

const widthOf = (lengths: readonly number[]): number =>
  Math.max(...lengths.filter((length) => length <= maxColumnWidth))

export const printJson = (value: unknown, { stdout }: ProcessIo): void =>
  void stdout.write(`${JSON.stringify(value, null, 2)}\n`)

/** The text of each column of a table, by its header. */
export type Columns<Item> = Readonly<Record<string, (item: Item) => string>>

/** Adds `--json`, which `printItems` follows. */
export const withJson = (command: Command): Command => command.option('--json', 'print JSON instead of a table')

/** Prints a list as a table, or with `--json` as an array of the items themselves. */
export function printItems<Item>(
  items: readonly Item[],
  columns: Columns<Item>,
  { json = false }: { json?: boolean },
  io: ProcessIo,
): void {
  if (json) printJson(items, io)
  else printTable([Object.keys(columns), ...items.map((item) => Object.values(columns).map((text) => text(item)))], io)
}

/** Prints objects as lines of JSON, as fast as the reader takes them. */
export async function printJsonLines(lines: AsyncIterable<object>, { stdout }: ProcessIo): Promise<void> {
  for await (const line of lines) {
    if (!stdout.write(`${JSON.stringify(line)}\n`)) await new Promise((drained) => stdout.once('drain', drained))
  }
}
