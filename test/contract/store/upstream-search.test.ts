import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { newestVersion } from '../../../src/store/migrations.ts'
import { openStore } from '../../../src/store/sqlite.ts'
import type { Store } from '../../../src/store/store.ts'
import type { UpstreamRow } from '../../../src/store/upstream-rows.ts'
import { org } from '../../support/rows.ts'

const other = { ...org, id: 'org_other', name: 'other' }
const directory = mkdtempSync(join(tmpdir(), 'glovebox-upstream-search-'))
let store: Store
beforeAll(async () => {
  store = await openStore(join(directory, 'glovebox.db'))
  await store.orgs.ensure(org)
  await store.orgs.ensure(other)
  await store.upstreams.create(upstream('web/search', { displayName: 'Exa', tags: '["news"]' }, webTools))
  await store.upstreams.create(upstream('db/postgres', { description: 'Relational databases' }, [sqlTool]))
  await store.upstreams.create({ ...upstream('web/foreign', {}, webTools), orgId: other.id })
})
afterAll(async () => {
  await store.close()
  rmSync(directory, { recursive: true })
})

const inputSchema = { type: 'object' }
const webTools = [
  { name: 'webSearch', description: 'Finds pages.', inputSchema },
  { name: 'crawl', description: 'Reads pages after a search, and follows links.', inputSchema },
  { name: 'weather', title: '天気予報', description: 'Météo à Orléans', inputSchema },
]
const sqlTool = {
  name: 'run_query',
  description: 'Runs a statement.',
  inputSchema: {
    ...inputSchema,
    properties: { isolationLevel: { enum: ['serializable'], description: 'of the transaction' } },
  },
}

function upstream(name: string, row: Partial<UpstreamRow>, tools: object[]): UpstreamRow {
  const at = '2027-01-01T00:00:00.000Z'
  return {
    ...{ id: `ups_${name}`, orgId: org.id, name, displayName: name, description: '', tags: '[]', transport: 'http' },
    ...{
      url: '',
      program: null,
      timeoutMs: 1,
      enabled: 1,
      secrets: '',
      credentialMode: 'shared',
      changedListing: null,
    },
    ...{ listing: JSON.stringify({ tools, prompts: [], resources: [], server: '' }), listedAt: at },
    ...{ createdAt: at, updatedAt: at },
    ...row,
  }
}

const find = async (query: string, match: 'all' | 'any' = 'any', orgId = org.id) =>
  (await store.upstreamSearch.find(orgId, query, match, 100)).map(({ upstreamId, tool }) => `${upstreamId}#${tool}`)

describe('a search for tools', () => {
  it('ranks a word in a name before one in a description', async () => {
    const found = await find('searching')
    expect(found.filter((hit) => !hit.endsWith('#'))).toEqual(
      ['webSearch', 'crawl', 'weather'].map((tool) => `ups_web/search#${tool}`),
    )
  })

  it.each([
    ['a word of a name in camelCase', 'web finds', 'ups_web/search#webSearch'],
    ['a name of an argument', 'isolation level', 'ups_db/postgres#run_query'],
    ['a value of an enumeration', 'Serializable', 'ups_db/postgres#run_query'],
    ['another form of a word', 'transactions', 'ups_db/postgres#run_query'],
    ['the beginning of a word', 'serializ', 'ups_db/postgres#run_query'],
    ['a word without its accents', 'meteo orleans', 'ups_web/search#weather'],
    ['a script without spaces', '予報', 'ups_web/search#weather'],
    ['the display name of the server', 'exa crawl', 'ups_web/search#crawl'],
    ['a tag of the server', 'news crawl', 'ups_web/search#crawl'],
  ])('finds %s', async (_what, query, hit) => {
    expect(await find(query, 'all')).toEqual([hit])
  })

  it('finds upstreams without tools by their description, and nothing of another organization', async () => {
    expect(await find('relational', 'all')).toEqual(['ups_db/postgres#'])
    expect(await find('crawl', 'any', other.id)).toEqual(['ups_web/foreign#crawl'])
    expect(await find('web foreign', 'all')).toEqual([])
  })

  it('reads words only, whatever else a query contains', async () => {
    for (const query of ['', ' ', '"', '***', '\0', '()', ':', '-', '^', '\ud800'])
      expect(await find(query)).toEqual([])
    const hostile = [
      'crawl"',
      '"crawl',
      'crawl*',
      '^crawl',
      '-crawl',
      'name:crawl',
      'crawl\0',
      '\0crawl',
      '{name}:crawl',
    ]
    for (const query of [...hostile, 'crawl) OR (crawl', "crawl'; drop table upstreams; --", '\ud800crawl']) {
      expect(await find(query), query).toContain('ups_web/search#crawl')
    }
    for (const query of ['NEAR(crawl weather)', 'crawl AND NOT weather', 'scope : x', 'org_id', 'ups_web'])
      await find(query)
    expect(await find(`crawl ${'x'.repeat(1_000_000)}`)).toContain('ups_web/search#crawl')
    expect(await find('crawl '.repeat(100_000))).toContain('ups_web/search#crawl')
  })

  it('accepts any text', () =>
    fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', maxLength: 60 }), async (query) => {
        await find(query)
        await find(query, 'all')
      }),
      { numRuns: 300 },
    ))

  it('finds what the latest listing contains, and nothing of a removed upstream', async () => {
    const row = upstream('tmp/one', {}, [{ name: 'ephemeral', inputSchema }])
    await store.upstreams.create(row)
    expect(await find('ephemeral')).toEqual(['ups_tmp/one#ephemeral'])
    await store.upstreams.update(row.id, { listing: upstream('tmp/one', {}, [{ name: 'later', inputSchema }]).listing })
    expect([await find('ephemeral'), await find('later')]).toEqual([[], ['ups_tmp/one#later']])
    await store.upstreams.update(row.id, { displayName: 'Renamed' })
    expect(await find('renamed')).toHaveLength(2)
    await store.upstreams.remove(row.id)
    expect([await find('later'), await find('renamed')]).toEqual([[], []])
  })

  it('reads a schema of any depth', async () => {
    const deep = `{"tools":[{"name":"deep","inputSchema":${'{"properties":{"inner":'.repeat(50_000)}1${'}}'.repeat(50_000)}}]}`
    await store.upstreams.create(upstream('tmp/deep', { listing: deep }, []))
    expect(await find('inner')).toEqual(['ups_tmp/deep#deep'])
    await store.upstreams.remove('ups_tmp/deep')
  })
})

describe('an upgrade to the version with the index', () => {
  it('indexes the upstreams that exist', async () => {
    let version = newestVersion
    while (await hasIndex(version)) version--
    const path = join(directory, `${version}.db`)
    const old = new DatabaseSync(path)
    const { name, listing } = upstream('web/search', {}, webTools)
    old.prepare('insert into orgs (id, name, created_at) values (?, ?, ?)').run(org.id, org.name, org.createdAt)
    old
      .prepare(
        `insert into upstreams (id, org_id, name, display_name, description, tags, url, timeout_ms, enabled, secrets, listing, created_at, updated_at)
         values ('ups_old', ?, ?, '', '', '[]', '', 1, 1, '', ?, '', '')`,
      )
      .run(org.id, name, listing)
    old.close()
    const upgraded = await openStore(path)
    expect(await upgraded.upstreamSearch.find(org.id, 'crawl', 'all', 10)).toMatchObject([{ tool: 'crawl' }])
    await upgraded.close()
  })

  async function hasIndex(version: number): Promise<boolean> {
    const path = join(directory, `${version}.db`)
    await (await openStore(path, { schema: version })).close()
    const database = new DatabaseSync(path, { readOnly: true })
    const found = database.prepare("select name from sqlite_master where name = 'upstream_search'").get()
    database.close()
    return found !== undefined
  }
})
