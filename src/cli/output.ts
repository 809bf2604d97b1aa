/** How commands print what they found: as a table for people, or as JSON for programs. */

import { stripVTControlCharacters } from 'node:util'
import type { Command } from 'commander'
import type { ProcessIo } from './process-io.ts'
import { printable, type Style, styled } from './terminal.ts'

/**
 * Prints rows in aligned columns; the first row is the header. The last column is not padded, and a cell that is much
 * wider than the others of its column does not widen all rows.
 * @param rows cells that are safe to print; they may contain colors.
 */
export function printTable(rows: readonly (readonly string[])[], { stdout, env }: ProcessIo): void {
  const lengthOf = (cell: string) => stripVTControlCharacters(cell).length
  const widths = rows[0]!.map((_, column) => widthOf(rows.map((row) => lengthOf(row[column]!))))
  for (const [at, row] of rows.entries()) {
    const cells = row.map((cell, column) => cell + ' '.repeat(Math.max(widths[column]! - lengthOf(cell), 0)))
    const line = cells.join('  ').trimEnd()
    stdout.write(`${at === 0 ? styled(line, 'bold', stdout, env) : line}\n`)
  }
}

const maxColumnWidth = 48

const widthOf = (lengths: readonly number[]): number =>
  Math.max(...lengths.filter((length) => length <= maxColumnWidth))

/** Control characters that JSON texts may contain as they are, but that a terminal would act on. */
const unescaped = /[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g

export function printJson(value: unknown, { stdout }: ProcessIo): void {
  const text = JSON.stringify(value, null, 2)
  const escaped = (character: string) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
  stdout.write(`${text.replaceAll(unescaped, escaped)}\n`)
}

/** The text of each column of a table, by its header. */
export type Columns<Item> = Readonly<Record<string, (item: Item) => string>>

/** Adds `--json`. */
export const withJson = (command: Command): Command => command.option('--json', 'print JSON')

/** Colors the words of a column that have a style. */
const styles: Readonly<Record<string, Style>> = {
  success: 'green',
  running: 'cyan',
  failed: 'red',
  timeout: 'red',
  oom: 'red',
  cancelled: 'yellow',
  revoked: 'dim',
  hidden: 'dim',
  busy: 'cyan',
}

/** A cell of a table: escaped on a terminal, and colored if it is a state. */
export function toCell(text: string, { stdout, env }: ProcessIo): string {
  const style = styles[text.split(' ', 1)[0]!]
  const shown = printable(text, stdout)
  return style === undefined ? shown : styled(shown, style, stdout, env)
}

/** Prints a list as a table, or with `--json` as an array of the items themselves. */
export function printItems<Item>(
  items: readonly Item[],
  columns: Columns<Item>,
  { json = false }: { json?: boolean },
  io: ProcessIo,
): void {
  if (json) {
    printJson(items, io)
    return
  }
  const rows = items.map((item) => Object.values(columns).map((text) => toCell(text(item), io)))
  printTable([Object.keys(columns), ...rows], io)
}

/** Prints the fields of one thing on lines of their own, or with `--json` as the thing itself. */
export function printFields<Item>(
  item: Item,
  fields: Readonly<Record<string, (item: Item) => string | undefined>>,
  { json = false }: { json?: boolean },
  io: ProcessIo,
): void {
  if (json) {
    printJson(item, io)
    return
  }
  const width = Math.max(...Object.keys(fields).map((name) => name.length))
  for (const [name, text] of Object.entries(fields)) {
    const value = text(item)
    if (value === undefined) continue
    io.stdout.write(`${styled(name.padEnd(width), 'bold', io.stdout, io.env)}  ${toCell(value, io)}\n`)
  }
}

/** Prints objects as lines of JSON, as fast as the reader takes them. */
export async function printJsonLines(lines: AsyncIterable<object>, { stdout }: ProcessIo): Promise<void> {
  for await (const line of lines) {
    if (!stdout.write(`${JSON.stringify(line)}\n`)) await new Promise((drained) => stdout.once('drain', drained))
  }
}
