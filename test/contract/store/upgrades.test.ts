import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { newestVersion } from '../../../src/store/migrations.ts'
import { openStore } from '../../../src/store/sqlite.ts'
import { org } from '../../support/rows.ts'

const previous = newestVersion - 1
let directory: string
let path: string
let kept: string
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'glovebox-upgrade-'))
  path = join(directory, 'glovebox.db')
  kept = `${path}.schema-${previous}`
  const store = await openStore(path, { schema: previous })
  await store.orgs.ensure(org)
  await store.close()
})
afterEach(() => rmSync(directory, { recursive: true }))

const upgrade = async () => (await openStore(path)).close()
const downgrade = () => openStore(path, { schema: previous })

function read(file: string, question: string): unknown {
  const database = new DatabaseSync(file, { readOnly: true })
  try {
    return Object.values(database.prepare(question).get() ?? {})[0]
  } finally {
    database.close()
  }
}

describe('an upgrade', () => {
  it('keeps a copy of the database with the previous schema, and all rows in both', async () => {
    expect(existsSync(kept)).toBe(false)
    await upgrade()
    expect([read(kept, 'select version from schema_version'), read(kept, 'select id from orgs')]).toEqual([
      previous,
      org.id,
    ])
    expect([read(path, 'select version from schema_version'), read(path, 'select id from orgs')]).toEqual([
      newestVersion,
      org.id,
    ])
  })

  it('is done once, and replaces the copy of the upgrade before', async () => {
    writeFileSync(`${path}.schema-3`, 'an older copy')
    const copies = () => readdirSync(directory).filter((name) => name.includes('schema'))
    await upgrade()
    expect(copies()).toEqual([basename(kept)])
    rmSync(kept)
    await upgrade()
    expect(copies()).toEqual([])
  })

  it('changes nothing when the copy cannot be written', async () => {
    mkdirSync(join(kept, 'in-the-way'), { recursive: true })
    await expect(upgrade()).rejects.toMatchObject({
      message: expect.stringContaining('cannot be copied'),
      remedy: expect.stringContaining(directory),
    })
    expect(read(path, 'select version from schema_version')).toBe(previous)
  })
})

describe('a downgrade', () => {
  it('is refused, and names the copy with which the older version starts', async () => {
    await upgrade()
    const refusal = await downgrade().catch((error: { remedy: string }) => error)
    expect(refusal).toMatchObject({ remedy: expect.stringContaining(`mv ${kept} ${path}`) })
    for (const end of ['-wal', '-shm']) rmSync(`${path}${end}`, { force: true })
    renameSync(kept, path)
    const store = await downgrade()
    expect(await store.orgs.list()).toMatchObject([{ id: org.id }])
    await store.close()
  })
})
