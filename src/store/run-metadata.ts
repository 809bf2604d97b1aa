import type { RunRow } from './store.ts'

/** Maximum length of a searchable value. Longer values are returned with the run but cannot be searched. */
const searchedCharacters = 256
const pairsMax = 64

/** Returns the searchable metadata of a run: scalar values at the top level, as text. */
export function metadataPairs({
  id,
  orgId,
  metadata,
  createdAt,
}: Pick<RunRow, 'id' | 'orgId' | 'metadata' | 'createdAt'>) {
  if (metadata === null) return []
  const pairs = Object.entries(JSON.parse(metadata) as Record<string, unknown>).flatMap(([key, given]) => {
    const value = textOf(given)
    const isSearched = value !== undefined && key.length <= searchedCharacters && value.length <= searchedCharacters
    return isSearched ? [{ runId: id, orgId, key, value, createdAt }] : []
  })
  return pairs.slice(0, pairsMax)
}

function textOf(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  return typeof value === 'number' || typeof value === 'boolean' || value === null ? String(value) : undefined
}
