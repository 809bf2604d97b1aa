import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openStore } from '../../../src/store/sqlite.ts'
import type { Store } from '../../../src/store/store.ts'
import { finishedResult, org, plainKey, plainProfile, plainRun } from '../../support/rows.ts'

let directory: string
let store: Store
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'glovebox-store-'))
  store = await openStore(join(directory, 'db'))
  await store.orgs.ensure(org)
  await store.keys.ensure(plainKey)
  await store.profiles.ensure(plainProfile)
})
afterEach(async () => {
  await store.close()
  await rm(directory, { recursive: true })
})

const at = '2026-02-01T00:00:00.000Z'
const nobodyBusy = { busyHosts: [], busyOrgs: [] }
const beside = (id: string) => ({
  code: Buffer.from('x'),
  delivery: { id: `evt_${id}`, url: 'https://a.example/', host: 'a.example', pendingMax: 10 },
})
const begin = (id: string, more: object = {}) =>
  store.runs.begin({ ...plainRun(id), deliveryMode: 'webhook', ...more }, beside(id))
const finish = (id: string) => store.runs.finish(id, at, finishedResult.ending, finishedResult)

describe('a pending webhook delivery', () => {
  it('is due from the moment when it is written, and not before', async () => {
    await begin('a')
    expect(await store.deliveries.due('2999-01-01T00:00:00.000Z', nobodyBusy, 10)).toEqual([])
    await finish('a')
    expect(await store.deliveries.due(at, nobodyBusy, 10)).toMatchObject([{ runId: 'a', status: 'due', attempts: 0 }])
    expect(await store.deliveries.due(at, { busyHosts: ['a.example'], busyOrgs: [] }, 10)).toEqual([])
    expect(await store.deliveries.due(at, { busyHosts: [], busyOrgs: [org.id] }, 10)).toEqual([])
  })

  it('is claimed by one of several workers', async () => {
    await begin('a')
    await finish('a')
    const [row] = await store.deliveries.due(at, nobodyBusy, 1)
    const takes = await Promise.all([1, 2, 3].map(() => store.deliveries.take(row!, '2026-02-01T00:00:30.000Z')))
    expect(takes.filter(Boolean)).toHaveLength(1)
    expect(await store.deliveries.due(at, nobodyBusy, 1)).toEqual([])
    expect(await store.deliveries.due('2026-02-01T00:00:30.000Z', nobodyBusy, 1)).toHaveLength(1)
  })

  it('counts as outstanding until it is settled, up to the requested number', async () => {
    for (const id of ['a', 'b', 'c']) await begin(id)
    await finish('a')
    expect([await store.deliveries.outstanding(org.id, 10), await store.deliveries.outstanding(org.id, 2)]).toEqual([
      3, 2,
    ])
    const settled = { attempts: 1, dueAt: null, problem: null, updatedAt: at }
    await store.deliveries.settle('evt_a', { ...settled, status: 'delivered' })
    await store.deliveries.settle('evt_b', { ...settled, status: 'dead' })
    expect(await store.deliveries.outstanding(org.id, 10)).toBe(1)
  })

  it('is written with its run or not at all', async () => {
    await begin('a')
    await expect(store.runs.begin({ ...plainRun('b'), deliveryMode: 'webhook' }, beside('a'))).rejects.toThrow(/UNIQUE/)
    expect(await store.runs.get('b')).toBeUndefined()
  })
})

describe('the data of a run', () => {
  const find = async () =>
    (await store.history.page(org.id, { metadata: [['who', 'ada']] }, { createdAt: '9999', id: '' }, 10)).rows

  it('is deleted when its subject is erased', async () => {
    await begin('a', { subject: 'Ada', metadata: '{"who":"ada"}', threadId: 't' })
    await finish('a')
    expect([(await find()).length, (await store.history.code('a'))?.length]).toEqual([1, 1])
    await store.subjects.erase(org.id, 'Ada', (erased) => ({
      at,
      orgId: org.id,
      actor: 'operator',
      action: 'subject.erase',
      target: '',
      details: { audit_lines: erased.auditLines },
      personal: null,
      subject: null,
    }))
    expect(await find()).toEqual([])
    expect(await store.history.code('a')).toBeUndefined()
    expect(await store.deliveries.get('a')).toBeUndefined()
    expect(await store.runs.get('a')).toMatchObject({ threadId: null, metadata: null })
  })

  it('is deleted with its run, in batches, oldest first', async () => {
    for (const id of ['a', 'b', 'c']) {
      await begin(id, { createdAt: `2026-01-0${id.charCodeAt(0) - 96}T00:00:00.000Z` })
      if (id !== 'c') await finish(id)
    }
    expect(await store.history.forget(org.id, '2026-01-03T00:00:00.001Z', 1)).toBe(1)
    expect(await store.runs.get('a')).toBeUndefined()
    expect(await store.history.forget(org.id, '2026-01-03T00:00:00.001Z', 10)).toBe(1)
    expect(await store.runs.get('c')).toBeDefined()
  })
})
