import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createToken } from '../../src/core/admin/tokens.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'

let front: Front
let owner: string
beforeAll(async () => {
  front = await openFront(threadsProfile, { dev: false, trustedProxies: ['127.0.0.1'] })
  owner = (await createToken(front.core.adminContext, operator, { name: 'owner', role: 'owner' })).secret
})
afterAll(() => front.close())

interface Own {
  org: string
  key: string
}

let orgs = 0
async function newOrg(): Promise<Own> {
  const { id: org } = await createOrg(front.core.adminContext, operator, `audited ${++orgs}`)
  return { org, key: (await createKey(front.core.adminContext, operator, org, {}, [])).secret }
}

async function run(
  { key }: Own,
  code: string,
  more: object = {},
): Promise<{ status: number; trace_id: string; stdout: string }> {
  const response = await front.post('/v1/sandbox/execute', { language: 'bash', code, ...more }, { 'x-api-key': key })
  return { ...((await response.json()) as { trace_id: string; stdout: string }), status: response.status }
}

async function admin(
  method: string,
  path: string,
  body?: object,
  secret = owner,
): Promise<{ status: number; text: string }> {
  const response = await fetch(`${front.url}/admin/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${secret}`, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
  })
  return { status: response.status, text: await response.text() }
}

const linesOf = (text: string) =>
  text
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as { type: string; action?: string; [name: string]: unknown })

describe('the audit log over the API', () => {
  it('lists operations and runs newest first, page by page and as an export, and verifies its own integrity', async () => {
    const own = await newOrg()
    for (let n = 0; n < 5; n++) await run(own, `echo ${n}`, { env_vars: { TOKEN: 'hidden-value' } })
    const first = JSON.parse((await admin('GET', `/audit?org=${own.org}&action=run&limit=2`)).text)
    expect(first.data).toHaveLength(2)
    expect(first.data[0].seq).toBeGreaterThan(first.data[1].seq)
    const next = JSON.parse(
      (await admin('GET', `/audit?org=${own.org}&action=run&limit=9&cursor=${first.next_cursor}`)).text,
    )
    expect(next.data).toHaveLength(3)
    const all = linesOf((await admin('GET', `/audit/export?org=${own.org}`)).text)
    expect(all.map(({ action }) => action)).toEqual(['org.create', 'key.create', 'run', 'run', 'run', 'run', 'run'])
    expect(JSON.stringify(all)).not.toContain('hidden-value')
    expect(JSON.stringify(all)).toContain('"env_names":["TOKEN"]')
    const proof = JSON.parse((await admin('POST', '/audit/verify', {})).text)
    expect(proof).toMatchObject({ holds: true })
    expect(
      JSON.parse((await admin('POST', '/audit/verify', { anchor: `${proof.lines}:${proof.head}` })).text).holds,
    ).toBe(true)
    expect(
      JSON.parse((await admin('POST', '/audit/verify', { anchor: `${proof.lines}:${'0'.repeat(64)}` })).text).holds,
    ).toBe(false)
    expect((await admin('POST', '/audit/verify', { anchor: 'x' })).status).toBe(400)
    expect((await admin('GET', '/audit?from=yesterday')).status).toBe(400)
  })

  it('shows an administrator of one organization only its own entries', async () => {
    const [own, other] = [await newOrg(), await newOrg()]
    const { secret } = await createToken(front.core.adminContext, operator, {
      name: 'x',
      role: 'owner',
      org_id: own.org,
    })
    const lines = linesOf((await admin('GET', '/audit/export', undefined, secret)).text)
    expect(lines.length).toBeGreaterThan(1)
    expect(lines.every(({ org_id: org }) => org === own.org)).toBe(true)
    expect((await admin('GET', `/audit?org=${other.org}`, undefined, secret)).status).toBe(404)
    expect((await admin('POST', '/audit/verify', {}, secret)).status).toBe(403)
    expect((await admin('POST', `/orgs/${other.org}/subjects/erase`, { subject: 'x' }, secret)).status).toBe(404)
  })
})

describe('a subject', () => {
  it('owns a thread from its first run on; no other subject can use it', async () => {
    const own = await newOrg()
    const { trace_id: first } = await run(own, 'echo x >f', { thread_id: 'case', subject: 'Ada' })
    const { trace_id: second } = await run(own, 'cat f', { thread_id: 'case' })
    for (const id of [first, second]) expect((await front.store.runs.get(id))?.subject).toBe('Ada')
    const other = await run(own, 'cat f', { thread_id: 'case', subject: 'Bob' })
    expect(other.status).toBe(409)
    expect(JSON.stringify(other)).toContain('belongs to another subject')
    expect((await run(own, 'true', { subject: 'a\nb' })).status).toBe(400)
  })

  it('is exported completely, and nothing of other subjects with it', async () => {
    const own = await newOrg()
    const code = 'mkdir d; echo kept >d/file; echo printed'
    await run(own, code, { thread_id: 'of-ada', subject: 'Ada', metadata: { mail: 'ada@example.org' } })
    await run(own, 'echo secret of bob', { subject: 'Bob' })
    const { status, text } = await admin('POST', `/orgs/${own.org}/subjects/export`, { subject: 'Ada' })
    expect(status).toBe(200)
    const lines = linesOf(text)
    expect(lines.map(({ type }) => type)).toEqual(['run', 'thread', 'file', 'audit'])
    expect(lines[0]).toMatchObject({ metadata: { mail: 'ada@example.org' }, stdout: 'printed\n', thread_id: 'of-ada' })
    expect(lines[2]).toMatchObject({ path: 'd/file', size: 5 })
    expect(text).not.toContain('bob')
  })

  it('is erased from rows, files and the database file, and the audit log still verifies', async () => {
    const own = await newOrg()
    const mark = 'erase-me-4711'
    const secret = { thread_id: `t-${mark}`, subject: mark, metadata: { mail: mark } }
    for (let n = 0; n < 3; n++) await run(own, `echo ${mark} | tee -a f`, secret)
    await run(own, 'echo of bob', { subject: 'Bob', thread_id: 'of-bob' })
    const { status, text } = await admin('POST', `/orgs/${own.org}/subjects/erase`, { subject: mark })
    expect([status, JSON.parse(text)]).toEqual([200, { runs: 3, threads: 1, audit_lines: 3 }])
    expect(
      (await front.post('/v1/files/list', { source: 'thread', id: `t-${mark}` }, { 'x-api-key': own.key })).status,
    ).toBe(404)
    expect((await admin('POST', `/orgs/${own.org}/subjects/export`, { subject: mark })).text).toBe('')
    for (const file of ['', '-wal']) {
      expect([file, readFileSync(`${front.databasePath}${file}`, 'latin1').includes(mark)]).toEqual([file, false])
    }
    expect(JSON.parse((await admin('POST', '/audit/verify', {})).text)).toMatchObject({ holds: true, erased: 3 })
    expect(
      linesOf((await admin('POST', `/orgs/${own.org}/subjects/export`, { subject: 'Bob' })).text)[0],
    ).toMatchObject({ type: 'run' })
    const again = await admin('POST', `/orgs/${own.org}/subjects/erase`, { subject: mark })
    expect(JSON.parse(again.text)).toEqual({ runs: 0, threads: 0, audit_lines: 0 })
  })

  it('is not erased while one of its runs executes', async () => {
    const own = await newOrg()
    const going = run(own, 'sleep 1.5', { subject: 'Ada', thread_id: 'going' })
    await expect.poll(async () => (await front.store.runs.unfinished()).length, { timeout: 10_000 }).toBe(1)
    expect((await admin('POST', `/orgs/${own.org}/subjects/erase`, { subject: 'Ada' })).status).toBe(409)
    await going
    expect((await admin('POST', `/orgs/${own.org}/subjects/erase`, { subject: 'Ada' })).status).toBe(200)
  })

  it('of one organization does not exist for another', async () => {
    const [own, other] = [await newOrg(), await newOrg()]
    for (const each of [own, other]) await run(each, 'echo x', { subject: 'Same' })
    await admin('POST', `/orgs/${own.org}/subjects/erase`, { subject: 'Same' })
    const left = await admin('POST', `/orgs/${other.org}/subjects/export`, { subject: 'Same' })
    expect(linesOf(left.text).map(({ type }) => type)).toEqual(['run', 'audit'])
  })
})
