import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ThreadLocks } from '../../src/core/storage/thread-locks.ts'
import { Threads } from '../../src/core/storage/threads.ts'
import type { Runner } from '../../src/runner/protocol/messages.ts'
import { openStore } from '../../src/store/sqlite.ts'
import type { Store } from '../../src/store/store.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'
import { ProcessRunner } from '../support/process-runner.ts'

let front: Front
beforeAll(async () => {
  front = await openFront(threadsProfile)
})
afterAll(() => front.close())

const threadsOf = (store: Store, runner: Runner) => new Threads(store, runner, new ThreadLocks(store, front.log))

interface Body {
  id: string
  busy: boolean
  message: string
  data: { id: string }[]
  next_cursor: string | null
}

async function call(method: string, path: string, body?: unknown): Promise<{ status: number; body: Body }> {
  const response = await fetch(`${front.url}${path}`, {
    method,
    ...(body !== undefined && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  })
  const text = await response.text()
  return { status: response.status, body: (text === '' ? {} : JSON.parse(text)) as Body }
}

const run = (code: string, threadId: string) =>
  front.post('/v1/sandbox/execute', { code, language: 'bash', thread_id: threadId })

const stdoutOf = async (code: string, threadId: string): Promise<string> =>
  ((await (await run(code, threadId)).json()) as { stdout: string }).stdout

/** A run that holds the thread until it is released. */
async function holding(threadId: string) {
  const gate = join(await mkdtemp(join(tmpdir(), 'glovebox-gate-')), 'open')
  const held = run(`until [ -e ${gate} ]; do sleep 0.05; done`, threadId)
  await expect
    .poll(() => call('GET', `/v1/threads/${threadId}`).then(({ body }) => body.busy), { timeout: 20_000 })
    .toBe(true)
  return async () => {
    await writeFile(gate, '')
    await held
    await rm(dirname(gate), { recursive: true })
  }
}

const rowOf = (id: string) => front.store.threads.get('org_dev', id)

describe('threads over REST', () => {
  it('are listed page by page, and returned one by one', async () => {
    for (const name of ['a1', 'a2', 'a3']) await run('echo x >f', name)
    const first = await call('GET', '/v1/threads?limit=2')
    expect(first.body.data.map(({ id }) => id)).toEqual(['a1', 'a2'])
    const rest = await call('GET', `/v1/threads?limit=2&cursor=${first.body.next_cursor}`)
    expect(rest.body).toMatchObject({ data: [{ id: 'a3', busy: false }], next_cursor: null })
    expect(await call('GET', '/v1/threads/a1')).toEqual({
      status: 200,
      body: {
        id: 'a1',
        size_bytes: expect.any(Number),
        quota_bytes: 8 * 1024 * 1024,
        used_bytes: expect.any(Number),
        created_at: expect.any(String),
        last_used_at: expect.any(String),
        busy: false,
      },
    })
    for (const path of ['/v1/threads?limit=0', '/v1/threads?limit=x', '/v1/threads?cursor=!']) {
      expect((await call('GET', path)).status).toBe(400)
    }
  })

  it('are unknown when they do not exist or belong to another organization', async () => {
    await front.store.orgs.ensure({ id: 'org_2', name: 'two', createdAt: '2026-01-01T00:00:00.000Z' })
    const now = '2026-01-01T00:00:00.000Z'
    await front.store.threads.lock({ orgId: 'org_2', id: 'theirs', runId: 'trc_x', subject: null }, now, now)
    for (const id of ['theirs', 'none']) {
      for (const [method, path, body] of [
        ['GET', `/v1/threads/${id}`, undefined],
        ['DELETE', `/v1/threads/${id}`, undefined],
        ['POST', `/v1/threads/${id}/fork`, { to: 'copy' }],
      ] as const) {
        const answer = await call(method, path, body)
        expect([answer.status, answer.body.message]).toEqual([404, `The thread ${id} does not exist.`])
      }
    }
    expect(await front.store.threads.get('org_2', 'theirs')).toMatchObject({ state: null })
    expect(await rowOf('copy')).toBeUndefined()
  })

  it('are deleted with their content, and start empty', async () => {
    await run('echo x >f', 'gone')
    expect((await call('DELETE', '/v1/threads/gone')).status).toBe(204)
    expect((await call('GET', '/v1/threads/gone')).status).toBe(404)
    expect((await call('DELETE', '/v1/threads/gone')).status).toBe(404)
    expect(await stdoutOf('ls -A', 'gone')).toBe('')
  })

  it('can be neither deleted nor forked while a run uses them', async () => {
    const letGo = await holding('held')
    expect((await call('DELETE', '/v1/threads/held')).status).toBe(409)
    expect((await call('POST', '/v1/threads/held/fork', { to: 'of-held' })).status).toBe(409)
    expect(await rowOf('of-held')).toBeUndefined()
    await letGo()
    expect((await call('DELETE', '/v1/threads/held')).status).toBe(204)
  })

  it('are forked completely, and then diverge', async () => {
    await run('mkdir d; echo one >d/f', 'origin')
    expect(await call('POST', '/v1/threads/origin/fork', { to: 'copy' })).toMatchObject({
      status: 201,
      body: { id: 'copy', busy: false },
    })
    await run('echo two >d/f', 'origin')
    expect(await stdoutOf('cat d/f', 'copy')).toBe('one\n')
    for (const to of ['copy', 'origin']) {
      expect((await call('POST', '/v1/threads/origin/fork', { to })).status).toBe(409)
    }
    for (const body of [{}, { to: '../x' }, { to: 1 }]) {
      expect((await call('POST', '/v1/threads/origin/fork', body)).status).toBe(400)
    }
  })

  it('are forked once when many forks use the same name', async () => {
    await run('echo x >f', 'many')
    const all = await Promise.all(
      Array.from({ length: 20 }, () => call('POST', '/v1/threads/many/fork', { to: 'once' })),
    )
    expect(all.map(({ status }) => status).sort()).toEqual([201, ...Array(19).fill(409)])
  })

  it('pass their subject on to forks', async () => {
    await front.post('/v1/sandbox/execute', { code: 'true', language: 'bash', thread_id: 'owned', subject: 'case 1' })
    await call('POST', '/v1/threads/owned/fork', { to: 'owned-too' })
    expect(await rowOf('owned-too')).toMatchObject({ subject: 'case 1' })
  })
})

describe('the interrupted work of a front that was killed', () => {
  const [orgId, at] = ['org_left', '2026-01-01T00:00:00.000Z']
  const where = (name: string) => ({ area: 'threads' as const, org: orgId, name })
  let directory: string
  let store: Store
  let runner: ProcessRunner

  // Without a front that would complete it before this suite has looked.
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'glovebox-left-'))
    store = await openStore(join(directory, 'glovebox.sqlite'))
    runner = new ProcessRunner()
    await store.orgs.ensure({ id: orgId, name: 'left', createdAt: at })
  })
  afterAll(async () => {
    runner.close()
    await store.close()
    await rm(directory, { recursive: true })
  })

  const lock = (id: string, until = at) => store.threads.lock({ orgId, id, runId: 'trc_1', subject: null }, at, until)
  const left = async (id: string) => [
    await store.threads.get(orgId, id),
    (await runner.storage.sizes('threads', orgId, [id]))[0],
  ]

  it('on deleting a thread is completed by the next front, before any run can use the thread', async () => {
    for (const isErased of [false, true]) {
      await lock('deleted')
      await store.threads.free('trc_1', at)
      if (!isErased) await runner.storage.create(where('deleted'), { bytes: 1, inodes: 1 })
      expect(await store.threads.beginRemoval(orgId, 'deleted', at)).toBe(true)
      expect(await lock('deleted')).toBeUndefined()
      await threadsOf(store, runner).settle()
      expect(await left('deleted')).toEqual([undefined, null])
    }
  })

  it('on forking a thread is undone by the next front, before any run can use the thread', async () => {
    await runner.storage.create(where('forked'), { bytes: 1, inodes: 1 })
    for (const isCopied of [false, true]) {
      const more = { createdAt: at, lastUsedAt: at, subject: null, profile: 'default', quotaBytes: 1 }
      expect(await store.threads.beginMaking({ orgId, id: 'made', ...more })).toBe(true)
      if (isCopied) await runner.storage.fork(where('forked'), where('made'))
      expect(await lock('made')).toBeUndefined()
      expect(await store.threads.page(orgId, '', 10)).toEqual([])
      await threadsOf(store, runner).settle()
      expect(await left('made')).toEqual([undefined, null])
    }
  })

  it('is completed automatically shortly after the start', async () => {
    await run('echo x >f', 'later')
    await front.store.threads.beginRemoval('org_dev', 'later', '2026-01-01T00:00:00.000Z')
    await expect.poll(() => rowOf('later'), { timeout: 20_000 }).toBeUndefined()
  })
})

describe('unused threads', () => {
  const threads = () => threadsOf(front.store, front.runner)
  const age = async (id: string, lastUsedAt: string) => {
    await run('echo x >f', id)
    const held = { orgId: 'org_dev', id, runId: 'trc_age', subject: null }
    await front.store.threads.lock(held, lastUsedAt, lastUsedAt)
    await front.store.threads.free('trc_age', lastUsedAt)
  }

  it('are removed after the retention days of their profile, unless a run uses them', async () => {
    await age('old', '2020-01-01T00:00:00.000Z')
    await age('old-but-busy', '2020-01-01T00:00:00.000Z')
    await age('young', new Date(Date.now() - 86_400_000 * 6).toISOString())
    const letGo = await holding('old-but-busy')
    expect(await threads().expire(async () => null)).toBe(0)
    expect(await threads().expire(async (_, profile) => (profile === 'default' ? 7 : null))).toBe(1)
    expect(await rowOf('old')).toBeUndefined()
    expect(await rowOf('young')).toBeDefined()
    await letGo()
    // It was used until now.
    expect(await threads().expire(async (_, profile) => (profile === 'default' ? 7 : null))).toBe(0)
    expect(await rowOf('old-but-busy')).toBeDefined()
  })
})
