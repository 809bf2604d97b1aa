import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { StartRefused } from '../../../src/base/errors.ts'
import { openStore } from '../../../src/store/sqlite.ts'
import type { Store } from '../../../src/store/store.ts'
import { finishedResult, org, plainKey, plainProfile, plainRun } from '../../support/rows.ts'

const later = '2026-01-01T00:00:01.000Z'
let directory: string
let path: string
const opened: Store[] = []

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'glovebox-store-'))
  path = join(directory, 'glovebox.sqlite')
})
afterEach(async () => {
  for (const store of opened.splice(0)) await store.close()
  rmSync(directory, { recursive: true })
})

async function open(): Promise<Store> {
  const store = await openStore(path)
  opened.push(store)
  return store
}

/** A store in which a run can begin. */
async function openFilled(): Promise<Store> {
  const store = await open()
  await store.orgs.ensure(org)
  await store.keys.ensure(plainKey)
  await store.profiles.ensure(plainProfile)
  return store
}

/** A second connection to the same file, without any of our code. */
function raw<T>(look: (database: DatabaseSync) => T): T {
  const database = new DatabaseSync(path)
  try {
    return look(database)
  } finally {
    database.close()
  }
}

describe('a store', () => {
  it('keeps its rows when it is closed and opened again', async () => {
    const first = await openFilled()
    await first.runs.begin(plainRun('trc_1'))
    await opened.splice(0)[0]?.close()
    const second = await open()
    expect(await second.orgs.get(org.id)).toEqual(org)
    expect(await second.keys.get(plainKey.id)).toEqual(plainKey)
    expect(await second.profiles.get('default', 'r1')).toEqual(plainProfile)
    expect(await second.runs.get('trc_1')).toEqual({
      ...plainRun('trc_1'),
      finishedAt: null,
      ending: null,
      result: null,
    })
  })

  it('can be read only by its owner', async () => {
    await openFilled()
    for (const file of [path, `${path}-wal`, `${path}-shm`]) expect(statSync(file).mode & 0o777).toBe(0o600)
  })

  it('returns undefined for unknown rows', async () => {
    const store = await open()
    expect(await store.orgs.get('org_x')).toBeUndefined()
    expect(await store.keys.get('key_x')).toBeUndefined()
    expect(await store.keys.findBySecretHash('x')).toBeUndefined()
    expect(await store.profiles.get('default', 'x')).toBeUndefined()
    expect(await store.threads.get('org_1', 'x')).toBeUndefined()
    expect(await store.runs.get('trc_x')).toBeUndefined()
  })

  it('treats every text as a value, never as SQL', async () => {
    const store = await openFilled()
    const name = `'); drop table runs; -- " \u{1f9e4} \n`
    await store.orgs.ensure({ ...org, id: name, name })
    expect(await store.orgs.get(name)).toMatchObject({ id: name, name })
    expect(await store.runs.unfinished()).toEqual([])
  })
})

describe('ensuring a row', () => {
  it('leaves an existing row unchanged', async () => {
    const store = await openFilled()
    await store.orgs.ensure({ ...org, name: 'Other' })
    await store.keys.ensure({ ...plainKey, name: 'other' })
    await store.profiles.ensure({ ...plainProfile, definition: '{}' })
    expect(await store.orgs.get(org.id)).toEqual(org)
    expect(await store.keys.get(plainKey.id)).toEqual(plainKey)
    expect(await store.profiles.get('default', 'r1')).toEqual(plainProfile)
  })

  it('finds or creates an organization by its name', async () => {
    const store = await openFilled()
    expect(await store.orgs.ensureNamed({ ...org, id: 'org_2' })).toEqual(org)
    const second = { ...org, id: 'org_2', name: 'Aaron' }
    expect(await store.orgs.ensureNamed(second)).toEqual(second)
    expect(await store.orgs.list()).toEqual([second, org])
  })

  it('separates threads of the same name in two organizations', async () => {
    const store = await openFilled()
    const lock = (orgId: string, runId: string) =>
      store.threads.lock({ orgId, id: 't', runId, subject: null }, later, '2099-01-01T00:00:00.000Z')
    await store.orgs.ensure({ ...org, id: 'org_2', name: 'Second' })
    expect(await lock('org_1', 'trc_1')).toBe(1)
    expect(await lock('org_2', 'trc_2')).toBe(1)
    expect(await lock('org_2', 'trc_3')).toBeUndefined()
    expect((await store.threads.get('org_1', 't'))?.lockedBy).toBe('trc_1')
    expect((await store.threads.get('org_2', 't'))?.lockedBy).toBe('trc_2')
  })

  it('gives a thread to one run at a time, each with a higher fencing number', async () => {
    const store = await openFilled()
    const [now, soon, late] = ['2026-01-01T00:00:00.000Z', '2026-01-01T00:01:00.000Z', '2026-01-01T00:02:00.000Z']
    const lock = (id: string, runId: string, at = now, until = soon) =>
      store.threads.lock({ orgId: org.id, id, runId, subject: null }, at, until)
    const tries = await Promise.all(Array.from({ length: 50 }, (_, n) => lock('t', `trc_${n}`)))
    expect(tries.filter((fence) => fence !== undefined)).toEqual([1])
    const holder = `trc_${tries.indexOf(1)}`
    expect(await store.threads.get(org.id, 't')).toMatchObject({ lockedBy: holder, lockedUntil: soon, fence: 1 })
    await store.threads.free('trc_stranger', now)
    expect(await lock('t', 'trc_a')).toBeUndefined()
    await store.threads.free(holder, now)
    expect(await lock('t', 'trc_a')).toBe(2)
    await store.threads.renew(['trc_a', 'trc_b'], late)
    expect(await lock('t', 'trc_b', '2026-01-01T00:01:30.000Z', late)).toBeUndefined()
    expect(await lock('t', 'trc_b', '2026-01-01T00:02:30.000Z', '2026-01-01T00:03:30.000Z')).toBe(3)
    expect(await lock('other', 'trc_c')).toBe(1)
  })

  it('releases the threads of ended runs, and of no others', async () => {
    const store = await openFilled()
    for (const id of ['going', 'ended']) {
      await store.runs.begin(plainRun(id))
      await store.threads.lock({ orgId: org.id, id: `of-${id}`, runId: id, subject: null }, later, later)
    }
    await store.runs.finish('ended', later, finishedResult.ending, finishedResult)
    await store.threads.freeEnded()
    expect((await store.threads.get(org.id, 'of-going'))?.lockedBy).toBe('going')
    expect(await store.threads.get(org.id, 'of-ended')).toMatchObject({ lockedBy: null, lockedUntil: null, fence: 1 })
  })
})

describe('a key', () => {
  it('is found by the hash of its secret', async () => {
    const store = await openFilled()
    expect(await store.keys.findBySecretHash(plainKey.secretHash ?? '')).toEqual(plainKey)
  })

  it('has a unique secret', async () => {
    const store = await openFilled()
    await expect(store.keys.ensure({ ...plainKey, id: 'key_2' })).rejects.toThrow(/UNIQUE/)
  })

  it('may have no secret, like others', async () => {
    const store = await openFilled()
    await store.keys.ensure({ ...plainKey, id: 'key_2', secretHash: null })
    await store.keys.ensure({ ...plainKey, id: 'key_3', secretHash: null })
    expect((await store.keys.list(org.id)).map(({ id }) => id)).toEqual(['key_1', 'key_2', 'key_3'])
    expect(await store.keys.list('org_2')).toEqual([])
  })

  it('is revoked once', async () => {
    const store = await openFilled()
    expect(await store.keys.revoke('key_1', later)).toBe(true)
    expect(await store.keys.revoke('key_1', '2027-01-01T00:00:00.000Z')).toBe(false)
    expect(await store.keys.revoke('key_x', later)).toBe(false)
    expect((await store.keys.get('key_1'))?.revokedAt).toBe(later)
  })

  it('is pending retirement from its revocation until that is done', async () => {
    const store = await openFilled()
    expect(await store.keys.notRetired()).toEqual([])
    await store.keys.revoke('key_1', later)
    expect((await store.keys.notRetired()).map(({ id }) => id)).toEqual(['key_1'])
    await store.keys.setRetired('key_1', later)
    expect(await store.keys.notRetired()).toEqual([])
    expect(await store.keys.get('key_1')).toEqual({ ...plainKey, revokedAt: later, retiredAt: later })
  })

  it('belongs to an existing organization', async () => {
    const store = await open()
    await expect(store.keys.ensure(plainKey)).rejects.toThrow(/FOREIGN KEY/)
  })
})

describe('a run', () => {
  it('is unfinished until its ending is written', async () => {
    const store = await openFilled()
    await store.runs.begin({ ...plainRun('trc_2'), createdAt: later })
    await store.runs.begin(plainRun('trc_1'))
    expect((await store.runs.unfinished()).map(({ id }) => id)).toEqual(['trc_1', 'trc_2'])
    expect(await store.runs.finish('trc_1', later, finishedResult.ending, finishedResult)).toBeDefined()
    expect((await store.runs.unfinished()).map(({ id }) => id)).toEqual(['trc_2'])
    expect(await store.runs.get('trc_1')).toEqual({
      ...plainRun('trc_1'),
      finishedAt: later,
      ending: { kind: 'exited', code: 3 },
      result: finishedResult,
    })
  })

  it('gets one ending: the first', async () => {
    const store = await openFilled()
    await store.runs.begin(plainRun('trc_1'))
    const endings = [{ kind: 'cancelled' }, { kind: 'shutdown' }, { kind: 'exited', code: 0 }] as const
    const written = await Promise.all(endings.map((ending) => store.runs.finish('trc_1', later, ending, null)))
    expect(written.filter(Boolean)).toHaveLength(1)
    const first = endings[written.findIndex((run) => run !== undefined)]
    expect((await store.runs.get('trc_1'))?.ending).toEqual(first)
  })

  it('gets none if it never began', async () => {
    const store = await openFilled()
    expect(await store.runs.finish('trc_x', later, { kind: 'cancelled' }, null)).toBeUndefined()
  })

  it('begins once', async () => {
    const store = await openFilled()
    await store.runs.begin(plainRun('trc_1'))
    await expect(store.runs.begin(plainRun('trc_1'))).rejects.toThrow(/UNIQUE/)
  })

  it('belongs to an existing key and profile revision', async () => {
    const store = await openFilled()
    await expect(store.runs.begin({ ...plainRun('trc_1'), keyId: 'key_x' })).rejects.toThrow(/FOREIGN KEY/)
    await expect(store.runs.begin({ ...plainRun('trc_1'), profileRevision: 'x' })).rejects.toThrow(/FOREIGN KEY/)
  })
})

describe('frequent queries', () => {
  const planOf = (question: string) =>
    raw((database) =>
      database
        .prepare(`explain query plan ${question}`)
        .all()
        .map(({ detail }) => detail)
        .join(),
    )

  it('use an index: a key by its hash, the unfinished runs', async () => {
    await openFilled()
    expect(planOf("select * from keys where secret_hash = 'x'")).toMatch(/USING INDEX keys_by_secret_hash/)
    expect(planOf('select * from runs where finished_at is null order by created_at')).toMatch(
      /USING INDEX runs_unfinished/,
    )
  })
})

describe('a database', () => {
  it('of a newer version is rejected, and left unchanged', async () => {
    await openFilled()
    raw((database) => database.exec('update schema_version set version = 99'))
    await expect(openStore(path)).rejects.toThrow(StartRefused)
    await expect(openStore(path)).rejects.toThrow(/newer version.*99/)
    expect(raw((database) => database.prepare('select version from schema_version').get()?.version)).toBe(99)
  })

  it('that is not a database is rejected, and left unchanged', async () => {
    writeFileSync(path, 'my own notes\n'.repeat(1000))
    await expect(openStore(path)).rejects.toThrow(StartRefused)
    expect(statSync(path).size).toBe(13_000)
  })

  it('in a missing directory is rejected with the path', async () => {
    await expect(openStore(join(directory, 'gone', 'x.sqlite'))).rejects.toThrow(/gone\/x\.sqlite cannot be used/)
  })
})

describe('two processes', () => {
  const script = fileURLToPath(new URL('../../support/store-writer.ts', import.meta.url))
  const startWriter = (name: string, count: number) => {
    const child = spawn(process.execPath, [script, path, name, String(count)], { stdio: ['ignore', 'pipe', 'pipe'] })
    const written = { out: '', err: '' }
    child.stdout.on('data', (chunk) => (written.out += chunk))
    child.stderr.on('data', (chunk) => (written.err += chunk))
    return { child, written, ids: () => written.out.split('\n').slice(0, -1) }
  }

  it('migrate a new database once, however many open it at the same moment', async () => {
    const writers = [1, 2, 3, 4].map((name) => startWriter(String(name), 0))
    const ends = await Promise.all(writers.map(async ({ child }) => (await once(child, 'close'))[0]))
    expect(ends).toEqual([0, 0, 0, 0])
    expect(raw((database) => database.prepare('select version from schema_version').all())).toHaveLength(1)
  })

  it('can write at once from the start: nothing is lost and no write is rejected', async () => {
    const writers = [startWriter('a', 300), startWriter('b', 300)]
    const ends = await Promise.all(
      writers.map(async ({ child, written }) => [...(await once(child, 'close')), written.err]),
    )
    expect(ends).toEqual([
      [0, null, ''],
      [0, null, ''],
    ])
    const store = await open()
    expect(await store.runs.unfinished()).toEqual([])
    for (const id of writers.flatMap((writer) => writer.ids())) {
      expect((await store.runs.get(id))?.ending).toEqual({ kind: 'exited', code: 3 })
    }
    expect(raw((database) => database.prepare('select count(*) as n from runs').get()?.n)).toBe(600)
  })

  it('leave an intact database when one is killed: every confirmed row is there', async () => {
    const writer = startWriter('k', 1_000_000)
    const closed = once(writer.child, 'close')
    while (writer.ids().length < 50) await once(writer.child.stdout, 'data')
    writer.child.kill('SIGKILL')
    await closed
    expect(raw((database) => database.prepare('pragma integrity_check').get()?.integrity_check)).toBe('ok')
    const store = await openFilled()
    for (const id of writer.ids()) expect((await store.runs.get(id))?.finishedAt).not.toBeNull()
    expect((await store.runs.unfinished()).length).toBeLessThanOrEqual(1)
    await store.runs.begin(plainRun('trc_after'))
  })
})
