import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openStore } from '../../../src/store/sqlite.ts'
import type { IdempotencyRow, KeptOutput, Store, TaskRow } from '../../../src/store/store.ts'
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

const { createdAt } = org
const later = '2999-01-01T00:00:00.000Z'
const claim = (runId: string, more: Partial<IdempotencyRow> = {}): IdempotencyRow => ({
  orgId: org.id,
  keyId: plainKey.id,
  idempotencyKey: 'k',
  requestHash: 'h',
  runId,
  expiresAt: later,
  ...more,
})
const task = (more: Partial<TaskRow> = {}): TaskRow => ({
  id: 'tsk_1',
  orgId: org.id,
  keyId: plainKey.id,
  runId: null,
  frontId: 'frt_1',
  status: 'working',
  outcome: null,
  createdAt,
  updatedAt: createdAt,
  expiresAt: later,
  ...more,
})
const output: KeptOutput = {
  stdout: { head: Buffer.from([0, 255, 10]), omittedBytes: 2 ** 40, tail: Buffer.from('tail') },
  stderr: { head: Buffer.alloc(0), omittedBytes: 0, tail: Buffer.alloc(0) },
  images: [{ mimeType: 'image/png', bytes: Buffer.from([137, 0, 255]) }],
}

describe('an idempotency record', () => {
  it('is claimed once, with its run, also by many at a time', async () => {
    const answers = await Promise.all(['a', 'b', 'c'].map((id) => store.runs.beginOnce(plainRun(id), claim(id))))
    expect(answers.map((taken) => taken?.runId)).toEqual([undefined, 'a', 'a'])
    expect(await store.runs.get('a')).toBeDefined()
    expect(await store.runs.get('b')).toBeUndefined()
  })

  it('belongs to one key of one caller', async () => {
    await store.runs.beginOnce(plainRun('a'), claim('a'))
    expect(await store.runs.beginOnce(plainRun('b'), claim('b', { idempotencyKey: 'other' }))).toBeUndefined()
  })

  it('can be claimed again when it has expired, or was released', async () => {
    await store.runs.beginOnce(plainRun('a'), claim('a', { expiresAt: '2000-01-01T00:00:00.000Z' }))
    expect(await store.runs.beginOnce(plainRun('b'), claim('b'))).toBeUndefined()
    await store.runs.deleteIdempotencyRecord('b')
    expect(await store.runs.beginOnce(plainRun('c'), claim('c'))).toBeUndefined()
  })
})

describe('the output of a run', () => {
  it('is stored with its ending, to the byte, and only for organizations that want it', async () => {
    await store.runs.begin(plainRun('a'))
    expect(await store.runs.finish('a', later, finishedResult.ending, finishedResult, output)).toBeDefined()
    expect(await store.runs.finish('a', later, { kind: 'cancelled' }, null, output)).toBeUndefined()
    const kept = await store.runs.output('a')
    expect(Buffer.from(kept?.stdout.head ?? [])).toEqual(output.stdout.head)
    expect(kept?.stdout.omittedBytes).toBe(2 ** 40)
    expect(await store.runs.output('b')).toBeUndefined()
  })
})

describe('a task', () => {
  it('ends once', async () => {
    await store.tasks.create(task())
    expect(await store.tasks.settle('tsk_1', later, 'cancelled', null)).toBe(true)
    expect(await store.tasks.settle('tsk_1', later, 'completed', '{}')).toBe(false)
    expect(await store.tasks.get('tsk_1')).toMatchObject({ status: 'cancelled', outcome: null, updatedAt: later })
  })
})

describe('expired data', () => {
  it('is deleted, and nothing else', async () => {
    const past = '2000-01-01T00:00:00.000Z'
    await store.tasks.create(task({ expiresAt: past }))
    await store.tasks.create(task({ id: 'tsk_2' }))
    for (const [id, endedAt] of [
      ['a', past],
      ['b', later],
    ] as const) {
      await store.runs.begin(plainRun(id))
      await store.runs.finish(id, endedAt, finishedResult.ending, finishedResult, output)
    }
    await store.forget('2010-01-01T00:00:00.000Z', '2010-01-01T00:00:00.000Z')
    expect([await store.tasks.get('tsk_1'), (await store.tasks.get('tsk_2'))?.id]).toEqual([undefined, 'tsk_2'])
    expect([await store.runs.output('a'), (await store.runs.output('b')) !== undefined]).toEqual([undefined, true])
    expect(await store.runs.get('a')).toBeDefined()
  })
})

describe('a secret', () => {
  it('is created once and then stays', async () => {
    expect(await store.secrets.ensure('s', 'first')).toBe('first')
    expect(await store.secrets.ensure('s', 'second')).toBe('first')
  })
})
