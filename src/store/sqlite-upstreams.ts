/** The full-text index of upstreams and their tools: https://www.sqlite.org/fts5.html */
import { type Kysely, sql } from 'kysely'
import type { Tables } from './tables.ts'
import type { UpstreamHit, UpstreamRow, UpstreamSearch } from './upstream-rows.ts'

/** Maximum number of words of a search; further ones are ignored. */
const wordsMax = 24
/** Maximum number of characters of a word; the rest is ignored. */
const wordMax = 64
/** Words with fewer characters match only whole words. */
const prefixMin = 3
/** Maximum number of characters of the description and schemas of one tool that are indexed. */
const textMax = 4_096

/**
 * Creates the index. `scope` contains the organization and the upstream as words, so that a search or a removal reads
 * only the rows of one of them. A row with an empty `tool` is the upstream itself.
 */
export const createUpstreamSearch = async (db: Kysely<Tables>): Promise<void> => {
  await sql`create virtual table upstream_search using fts5(
    scope, name, server, text, org_id unindexed, upstream_id unindexed, tool unindexed,
    tokenize = 'porter unicode61 remove_diacritics 2'
  )`.execute(db)
}

/** Replaces the rows of one upstream. */
export async function indexUpstream(db: Kysely<Tables>, upstream: UpstreamRow): Promise<void> {
  const { id, orgId, name, displayName, description, tags, listing } = upstream
  const server = spaced(`${name} ${displayName} ${(JSON.parse(tags) as string[]).join(' ')}`)
  const tools = (listing === null ? [] : (JSON.parse(listing) as { tools: IndexedTool[] }).tools).map((tool) => ({
    ...{ tool: tool.name, name: spaced(`${tool.name} ${tool.title ?? ''}`), text: spaced(textOf(tool)) },
  }))
  const rows = [{ tool: '', name: server, text: spaced(description) }, ...tools]
  await unindexUpstream(db, id)
  await sql`insert into upstream_search (scope, name, server, text, org_id, upstream_id, tool)
    select ${`${scopeOf(orgId)} ${scopeOf(id)}`}, value ->> 'name', ${server}, value ->> 'text', ${orgId}, ${id}, value ->> 'tool'
    from json_each(${JSON.stringify(rows)})`.execute(db)
}

/** Removes the rows of one upstream. */
export async function unindexUpstream(db: Kysely<Tables>, id: string): Promise<void> {
  await sql`delete from upstream_search where rowid in (
    select rowid from upstream_search where upstream_search match ${`scope : ${quoted(scopeOf(id))}`} and upstream_id = ${id}
  )`.execute(db)
}

/** @param searches connection that does not block the statements of runs. */
export const upstreamSearch = (searches: Kysely<Tables>): UpstreamSearch => ({
  async find(orgId, query, match, limit) {
    const words = wordsOf(query)
    if (words.length === 0) return []
    const text = words.map(matching).join(match === 'all' ? ' AND ' : ' OR ')
    // A word in the name of a tool says more than one in its description, and that more than one of its server.
    const { rows } = await sql<UpstreamHit>`
      select upstream_id, tool, -bm25(upstream_search, 0, 4, 0.5, 1) as score from upstream_search
      where upstream_search match ${`(scope : ${quoted(scopeOf(orgId))}) AND ({name server text} : (${text}))`}
        and org_id = ${orgId}
      order by score desc, upstream_id, tool limit ${limit}`.execute(searches)
    return rows
  },
})

interface IndexedTool {
  name: string
  title?: string
  description?: string
  inputSchema: unknown
}

/** IDs as words: the index ignores case and splits at other characters. */
const scopeOf = (id: string): string => `x${Buffer.from(id).toString('hex')}`

/** BOUNDARY: quoted words are never operators of a query. */
const quoted = (words: string): string => `"${words}"`

/** A whole word counts more than the beginning of one. */
const matching = (word: string): string =>
  word.length < prefixMin ? quoted(word) : `(${quoted(word)} OR ${quoted(word)} *)`

function wordsOf(query: string): string[] {
  const words = spaced(query.slice(0, wordsMax * wordMax * 2))
    .toLowerCase()
    .split(/[^\p{L}\p{N}\p{M}]+/u)
    .filter((word) => word !== '')
  return [...new Set(words)].slice(0, wordsMax).map((word) => [...word].slice(0, wordMax).join(''))
}

/** `webSearch` are two words, and so are the characters of scripts that are written without spaces. */
const spaced = (text: string): string =>
  text
    .replaceAll(/([\p{Ll}\p{N}])(\p{Lu})/gu, '$1 $2')
    .replaceAll(/[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/gu, ' $& ')

/** Returns the description of a tool, and the names and texts in its schema. */
function textOf({ description = '', inputSchema }: IndexedTool): string {
  const parts: string[] = [description]
  const open: unknown[] = [inputSchema]
  let length = description.length
  // Without recursion: an upstream chooses the depth.
  while (open.length > 0 && length < textMax) {
    const value = open.pop()
    if (typeof value !== 'object' || value === null) continue
    for (const [key, part] of Object.entries(value)) {
      const own = isNames(key, part) ? Object.keys(part) : texts.has(key) ? [part].flat() : []
      for (const one of own) {
        if (typeof one !== 'string') continue
        parts.push(one)
        length += one.length
      }
      open.push(part)
    }
  }
  return parts.join(' ').slice(0, textMax)
}

/** Keywords of JSON Schema whose values are words. */
const texts: ReadonlySet<string> = new Set(['title', 'description', 'enum', 'const', 'examples'])

const isNames = (key: string, part: unknown): part is object =>
  key === 'properties' && typeof part === 'object' && part !== null
