/** Searches in a large database: each looks at a bounded number of rows, found by an index. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runsOf } from '../../../src/core/runs/history.ts'
import { scannedRowsMax } from '../../../src/store/slice.ts'
import { openStore } from '../../../src/store/sqlite.ts'
import type { Store } from '../../../src/store/store.ts'
import { org, plainKey, plainProfile, plainRun } from '../../support/rows.ts'

const runs = 30_000
const beginning = { createdAt: '9999', id: '' }
let dir: string
let store: Store

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'glovebox-search-'))
  store = await openStore(join(dir, 'glovebox.db'))
  await store.orgs.ensure(org)
  await store.keys.ensure(plainKey)
  await store.profiles.ensure(plainProfile)
  await store.runs.begin({ ...plainRun('run_first'), metadata: '{"batch":"first"}' })
  multiply(runs - 1)
})

afterAll(async () => {
  await store?.close()
  rmSync(dir, { recursive: true, force: true })
})

/** Copies the first run and its audit line many times, each a millisecond older. */
function multiply(copies: number): void {
  const db = new DatabaseSync(join(dir, 'glovebox.db'))
  const columns = (db.prepare('select name from pragma_table_info(?)').all('runs') as { name: string }[]).map(
    ({ name }) => name,
  )
  const copied = columns.map((name) => {
    if (name === 'id') return `'run_' || printf('%06d', n)`
    if (name === 'created_at') return `strftime('%Y-%m-%dT%H:%M:%fZ', '2026-01-01', '+' || n || ' seconds')`
    if (name === 'finished_at') return 'created_at'
    return name === 'status' ? `'success'` : `"${name}"`
  })
  db.exec(`begin;
    with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < ${copies})
    insert into runs (${columns.map((name) => `"${name}"`).join(', ')})
      select ${copied.join(', ')} from numbers, runs where runs.id = 'run_first';
    with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < ${copies})
    insert into audit (seq, at, org_id, actor, action, target, details, hash)
      select n, '2026-01-01', '${org.id}', 'key', 'run.finish', '', '{}', '' from numbers;
    commit`)
  db.close()
}

describe('a search of runs', () => {
  it('does not delay the statements of runs', async () => {
    const settled: string[] = []
    const searches = Array.from({ length: 8 }, () => store.history.page(org.id, { language: 'bash' }, beginning, 10))
    const searched = Promise.all(searches).then(() => settled.push('searches'))
    await store.runs.get('run_first').then(() => settled.push('run'))
    await searched
    expect(settled).toEqual(['run', 'searches'])
  })

  it('sees what was committed before it began', async () => {
    await store.runs.begin({ ...plainRun('run_newest'), createdAt: '9998' })
    const { rows } = await store.history.page(org.id, {}, beginning, 1)
    expect(rows.map(({ id }) => id)).toEqual(['run_newest'])
    await store.runs.discard('run_newest')
  })

  it('stops after a bounded number of rows that do not match, and says where', async () => {
    const { rows, resumeAfter } = await store.history.page(org.id, { language: 'bash' }, beginning, 10)
    expect(rows).toEqual([])
    expect(resumeAfter).toBeDefined()
    const next = await store.history.page(org.id, { language: 'bash' }, resumeAfter ?? beginning, 10)
    expect((next.resumeAfter?.createdAt ?? '') < (resumeAfter?.createdAt ?? '')).toBe(true)
  })

  it('finds by status and by metadata without looking at other runs', async () => {
    for (const filter of [{ status: 'running' as const }, { metadata: [['batch', 'first']] as const }]) {
      const { rows, resumeAfter } = await store.history.page(org.id, filter, beginning, 10)
      expect([rows.map(({ id }) => id), resumeAfter]).toEqual([['run_first'], undefined])
    }
    const none = await store.history.page(org.id, { metadata: [['batch', 'second']] }, beginning, 10)
    expect(none).toEqual({ rows: [], resumeAfter: undefined })
  })

  it('reaches every run, page by page, also where pages stay empty', async () => {
    const caller = { orgId: org.id } as Parameters<typeof runsOf>[1]
    let cursor: string | undefined
    let pages = 0
    do {
      const page = await runsOf(store, caller, { language: 'bash', cursor })
      expect(page.items).toEqual([])
      cursor = page.nextCursor ?? undefined
      pages += 1
    } while (cursor !== undefined)
    expect(pages).toBeGreaterThan(1)
    expect(pages).toBeLessThan(runs / scannedRowsMax)
  })

  it('lets timers run meanwhile', async () => {
    let ticks = 0
    const timer = setInterval(() => ticks++, 1)
    await runsOf(store, { orgId: org.id } as Parameters<typeof runsOf>[1], { language: 'bash' })
    clearInterval(timer)
    expect(ticks).toBeGreaterThan(1)
  })
})

describe('a search of the audit log', () => {
  it('stops after a bounded number of lines that do not match, and says where', async () => {
    const { rows, resumeAfter } = await store.audit.list({ orgId: org.id, action: 'none' }, 0, 10)
    expect([rows, resumeAfter]).toEqual([[], scannedRowsMax])
    const newest = await store.audit.newest({ action: 'none' }, Number.MAX_SAFE_INTEGER, 10)
    expect([newest.rows, newest.resumeAfter]).toEqual([[], runs - scannedRowsMax])
  })
})

describe('the indexes', () => {
  it.each([
    [
      'runs by status',
      `select id from runs where org_id = 'o' and status = 'failed' order by created_at desc`,
      'runs_by_status',
    ],
    [
      'runs by metadata',
      `select run_id from run_metadata where org_id = 'o' and key = 'k' and value = 'v' order by created_at desc, run_id desc`,
      'run_metadata_by_value',
    ],
    [
      'output by its age',
      `select run_id from run_outputs where with_run = 0 and ended_at < 'x' order by ended_at`,
      'run_outputs_by_end',
    ],
    [
      'audit lines of an organization',
      `select seq from audit where org_id = 'o' and seq > 5 order by seq`,
      'audit_by_org',
    ],
  ])('find %s without a scan or a sort', (_, query, index) => {
    const db = new DatabaseSync(join(dir, 'glovebox.db'), { readOnly: true })
    const plan = db
      .prepare(`explain query plan ${query}`)
      .all()
      .map((row) => String(row.detail))
      .join('\n')
    db.close()
    expect(plan).toContain(index)
    expect(plan).not.toMatch(/SCAN|TEMP B-TREE/)
  })
})
