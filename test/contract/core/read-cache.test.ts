import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ReadCache } from '../../../src/core/read-cache.ts'
import { openStore } from '../../../src/store/sqlite.ts'
import type { Store } from '../../../src/store/store.ts'
import { org } from '../../support/rows.ts'

/** Longer than entries are used without a look at the database. */
const laterMs = 300

let directory: string
let store: Store
/** That of another process. */
let other: Store
let reads: number
let cache: ReadCache<readonly string[]>

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'glovebox-read-cache-'))
  const path = join(directory, 'glovebox.sqlite')
  store = await openStore(path)
  other = await openStore(path)
  await store.orgs.ensure(org)
  reads = 0
  cache = new ReadCache<readonly string[]>(store, 10, (orgId) => {
    reads += 1
    return store.hiddenTools.list(orgId)
  })
})
afterEach(async () => {
  await store.close()
  await other.close()
  rmSync(directory, { recursive: true })
})

describe('a cache of what calls read from the database', () => {
  it('reads once as long as no process writes', async () => {
    const first = await cache.get(org.id)
    await sleep(laterMs)
    expect(await cache.get(org.id)).toBe(first)
    expect(reads).toBe(1)
  })

  it('sees a change of its own process', async () => {
    expect(await cache.get(org.id)).toEqual([])
    await store.hiddenTools.hide(org.id, 'Read')
    await sleep(laterMs)
    expect(await cache.get(org.id)).toEqual(['Read'])
  })

  it('sees a change of another process', async () => {
    expect(await cache.get(org.id)).toEqual([])
    await other.hiddenTools.hide(org.id, 'Read')
    await sleep(laterMs)
    expect(await cache.get(org.id)).toEqual(['Read'])
    await other.hiddenTools.show(org.id, 'Read')
    await sleep(laterMs)
    expect(await cache.get(org.id)).toEqual([])
  })

  it('sees a change that another process made during a transaction', async () => {
    expect(await cache.get(org.id)).toEqual([])
    const begun = Promise.withResolvers<void>()
    const end = Promise.withResolvers<void>()
    const transaction = store.together(async ({ orgs }) => {
      await orgs.get(org.id)
      begun.resolve()
      await end.promise
    })
    await begun.promise
    await other.hiddenTools.hide(org.id, 'Read')
    await sleep(laterMs)
    const reading = cache.get(org.id)
    end.resolve()
    await transaction
    expect(await reading).toEqual(['Read'])
  })

  it('reads a value as it is now if it is asked to', async () => {
    expect(await cache.get(org.id)).toEqual([])
    await other.hiddenTools.hide(org.id, 'Read')
    expect(await cache.latest(org.id)).toEqual(['Read'])
    expect(await cache.get(org.id)).toEqual(['Read'])
  })

  it('reads again after a read has failed', async () => {
    let fails = true
    const failing = new ReadCache(store, 10, () => (fails ? Promise.reject(new Error('no')) : Promise.resolve('yes')))
    await expect(failing.get(org.id)).rejects.toThrow('no')
    fails = false
    expect(await failing.get(org.id)).toBe('yes')
  })
})
