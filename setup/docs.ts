/** Writes the generated pages of `docs/`. With `--check` it only lists stale pages, and fails if there are any. */
import { readFileSync, writeFileSync } from 'node:fs'
import { pages } from './pages.ts'

const root = new URL('../', import.meta.url)
const isCheck = process.argv.includes('--check')
const stale = Object.entries(pages()).filter(([path, text]) => textOf(path) !== text)

for (const [path, text] of stale) {
  if (isCheck) console.error(`${path} is stale: run npm run docs`)
  else writeFileSync(new URL(path, root), text)
}
process.exit(isCheck && stale.length > 0 ? 1 : 0)

function textOf(path: string): string | undefined {
  try {
    return readFileSync(new URL(path, root), 'utf8')
  } catch {
    return undefined
  }
}
