import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { eachLine, eraseAction, toRecord, verifyAudit } from '../../../src/core/audit/audit.ts'
import type { AuditEntry } from '../../../src/store/audit-rows.ts'
import { openStore } from '../../../src/store/sqlite.ts'
import type { Store } from '../../../src/store/store.ts'
import { finishedResult, org, plainKey, plainProfile, plainRun } from '../../support/rows.ts'

const at = '2026-01-01T00:00:01.000Z'
let directory: string
let path: string
let store: Store

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'glovebox-audit-'))
  path = join(directory, 'glovebox.sqlite')
  store = await openStore(path)
  await store.orgs.ensure(org)
  await store.keys.ensure(plainKey)
  await store.profiles.ensure(plainProfile)
})
afterEach(async () => {
  await store.close()
  rmSync(directory, { recursive: true })
})

const act = (target: string, subject: string | null = null): AuditEntry => ({
  at,
  orgId: org.id,
  actor: 'tok_1',
  action: 'key.create',
  target,
  details: { profile: 'default' },
  personal: subject === null ? null : { subject },
  subject,
})

const erasureOf = ({ auditLines }: { auditLines: unknown }): AuditEntry => ({
  ...act(''),
  action: eraseAction,
  details: { audit_lines: auditLines },
})

/** The database, modified directly by someone with write access. */
function tamper(change: (database: DatabaseSync) => void): void {
  const database = new DatabaseSync(path)
  try {
    database.exec('pragma foreign_keys = off')
    change(database)
  } finally {
    database.close()
  }
}

async function collect() {
  const lines = []
  for await (const line of eachLine(store, {})) lines.push(line)
  return lines
}

async function finishRun(id: string, more: object = {}): Promise<void> {
  await store.runs.begin({ ...plainRun(id), ...more })
  await store.runs.finish(id, at, finishedResult.ending, finishedResult)
}

describe('the audit log', () => {
  it('verifies while it is unmodified', async () => {
    expect(await verifyAudit(store)).toMatchObject({ holds: true, lines: 0 })
    for (let n = 1; n <= 600; n++) await store.audit.append(act(`key_${n}`, n % 2 ? 'Ada' : null))
    expect(await verifyAudit(store)).toMatchObject({ holds: true, lines: 600, erased: 0 })
  })

  it('has one entry per ended run, with the hash of its code and the names of its variables', async () => {
    await finishRun('trc_1', { envNames: '["TOKEN"]', subject: 'Ada' })
    expect(await store.runs.finish('trc_1', at, { kind: 'cancelled' }, null)).toBeUndefined()
    const lines = (await collect()).map(toRecord)
    expect(lines).toHaveLength(1)
    expect(lines[0]).toMatchObject({
      action: 'run',
      actor: plainKey.id,
      target: 'trc_1',
      details: { ending: finishedResult.ending, profile: 'default', language: 'python' },
      personal: { code_hash: 'b'.repeat(64), env_names: ['TOKEN'], subject: 'Ada' },
    })
  })

  it('numbers the entries of concurrent callers without a gap', async () => {
    const numbers = await Promise.all(Array.from({ length: 40 }, (_, n) => store.audit.append(act(`key_${n}`))))
    expect(numbers.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 40 }, (_, n) => n + 1))
    expect(await verifyAudit(store)).toMatchObject({ holds: true, lines: 40 })
  })

  /** Every column that is verified, in both tables and the head. */
  const flips: [table: string, column: string][] = [
    ['audit', 'at'],
    ['audit', 'org_id'],
    ['audit', 'actor'],
    ['audit', 'action'],
    ['audit', 'target'],
    ['audit', 'details'],
    ['audit', 'personal_digest'],
    ['audit', 'hash'],
    ['audit', 'subject'],
    ['audit', 'salt'],
    ['audit', 'personal'],
    ['audit_head', 'hash'],
  ]

  it.each(flips)('detects a flipped byte in %s.%s', async (table, column) => {
    for (let n = 1; n <= 3; n++) await store.audit.append(act(`key_${n}`, 'Ada'))
    const where = table === 'audit_head' ? 'id = 1' : 'seq = 2'
    tamper((database) => {
      const { value } = database.prepare(`select ${column} as value from ${table} where ${where}`).get() as {
        value: string
      }
      const flipped = String.fromCharCode(value.charCodeAt(value.length >> 1) ^ 1)
      const changed = value.slice(0, value.length >> 1) + flipped + value.slice((value.length >> 1) + 1)
      expect(database.prepare(`update ${table} set ${column} = ? where ${where}`).run(changed).changes).toBe(1)
    })
    expect(await verifyAudit(store)).toMatchObject({ holds: false, seq: table === 'audit_head' ? 3 : 2 })
  })

  it('detects a deleted entry, in the middle or at the end', async () => {
    for (let n = 1; n <= 4; n++) await store.audit.append(act(`key_${n}`))
    tamper((database) => database.exec('delete from audit where seq = 4'))
    expect(await verifyAudit(store)).toMatchObject({ holds: false, seq: 4 })
    tamper((database) => database.exec('delete from audit where seq = 2'))
    expect(await verifyAudit(store)).toMatchObject({ holds: false, seq: 2 })
  })

  it('detects a truncated end with a rewritten head, by an anchor that is kept elsewhere', async () => {
    for (let n = 1; n <= 4; n++) await store.audit.append(act(`key_${n}`))
    const anchor = await store.audit.head()
    tamper((database) => {
      database.exec('delete from audit where seq > 2')
      database.exec('update audit_head set seq = 2, hash = (select hash from audit where seq = 2)')
    })
    expect(await verifyAudit(store)).toMatchObject({ holds: true })
    expect(await verifyAudit(store, anchor)).toMatchObject({ holds: false, seq: 3 })
  })

  it('still verifies after the data of a subject was erased, and not after it was simply deleted', async () => {
    await finishRun('trc_1', { subject: 'Ada', metadata: '{"mail":"ada@example.org"}' })
    await finishRun('trc_2', { subject: 'Bob' })
    await finishRun('trc_3', { subject: 'Ada' })
    const erased = await store.subjects.erase(org.id, 'Ada', erasureOf)
    expect(erased).toEqual({
      runs: 2,
      auditLines: [
        [1, 1],
        [3, 3],
      ],
    })
    expect(await verifyAudit(store)).toMatchObject({ holds: true, lines: 4, erased: 2 })
    expect(JSON.stringify(await collect())).not.toContain('ada@')
    expect(await store.runs.get('trc_1')).toMatchObject({ subject: null, metadata: null, codeHash: '' })
    expect(await store.runs.get('trc_2')).toMatchObject({ subject: 'Bob' })
    tamper((database) => database.exec('update audit set subject = null, salt = null, personal = null where seq = 2'))
    expect(await verifyAudit(store)).toMatchObject({ holds: false, seq: 2 })
  })
})
