import type { RunRow } from './store.ts'

/** Longer ones are told with the run and not searched by. */
const searchedCharacters = 256
const pairsMax = 64

/** What a run can be found by: single values at the top of its metadata, as text. */
export function metadataPairs({ id, orgId, metadata }: Pick<RunRow, 'id' | 'orgId' | 'metadata'>) {
  if (metadata === null) return []
  const pairs = Object.entries(JSON.parse(metadata) as Record<string, unknown>).flatMap(([key, given]) => {
    const value = textOf(given)
    const isSearched = value !== undefined && key.length <= searchedCharacters && value.length <= searchedCharacters
    return isSearched ? [{ runId: id, orgId, key, value }] : []
  })
  return pairs.slice(0, pairsMax)
}

function textOf(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  return typeof value === 'number' || typeof value === 'boolean' || value === null ? String(value) : undefined
}
