/** Reads the table of docs/clients.md, so that it cannot differ from what the tests see. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { cases } from './cases.ts'

const page = join(import.meta.dirname, '../../docs/clients.md')
const columns = ['client', ...cases.map(({ title }) => title)]

const cellsOf = (line: string): string[] =>
  line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim())

/** The cells of a client in the table whose columns are the cases. @throws Error when the page has no such row. */
export function documentedRow(client: string): string[] {
  const lines = readFileSync(page, 'utf8').split('\n')
  const start = lines.findIndex((line) => cellsOf(line).join() === columns.join())
  if (start === -1) throw new Error(`docs/clients.md has no table with the columns ${columns.join(', ')}`)
  const row = lines
    .slice(start)
    .map(cellsOf)
    .find(([name]) => name === client)
  if (row === undefined) throw new Error(`docs/clients.md has no row for ${client}`)
  return row.slice(1)
}
