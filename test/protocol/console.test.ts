import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createToken, revokeToken } from '../../src/core/admin/tokens.ts'
import { RunChanges } from '../../src/core/runs/run-changes.ts'
import { Logins } from '../../src/http/console/logins.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'

interface Org {
  id: string
  key: string
  otherKey: string
  /** Of this organization. */
  token: string
}

let front: Front
let mine: Org
let other: Org
const tokens: Record<string, string> = {}
beforeAll(async () => {
  front = await openFront(threadsProfile, { dev: false, trustedProxies: ['127.0.0.1'] })
  for (const role of ['owner', 'admin', 'member'] as const) tokens[role] = (await newToken(role)).secret
  mine = await newOrg('mine')
  other = await newOrg('other')
})
afterAll(() => front.close())

const newToken = (role: 'owner' | 'admin' | 'member', orgId: string | null = null) =>
  createToken(front.core.adminContext, operator, { name: 'console', role, org_id: orgId })

async function newOrg(name: string): Promise<Org> {
  const { id } = await createOrg(front.core.adminContext, operator, name)
  const key = async () => (await createKey(front.core.adminContext, operator, id, {}, [])).secret
  return { id, key: await key(), otherKey: await key(), token: (await newToken('admin', id)).secret }
}

const bearer = (secret: string) => ({ authorization: `Bearer ${secret}` })

async function run(key: string, body: object): Promise<string> {
  const response = await front.post('/v1/sandbox/execute', { language: 'bash', ...body }, bearer(key))
  expect(response.status).toBe(200)
  return ((await response.json()) as { trace_id: string }).trace_id
}

interface Answer {
  data: { trace_id: string; key_id: string }[]
  next_cursor: string | null
  files: object[]
}

async function get(
  path: string,
  headers: Record<string, string>,
): Promise<{ status: number; body: Answer; text: string }> {
  const response = await fetch(front.url + path, { headers })
  const text = await response.text()
  return {
    status: response.status,
    body: (response.headers.get('content-type')?.startsWith('application/json') ? JSON.parse(text) : {}) as Answer,
    text,
  }
}

describe('administrators', () => {
  it('list the runs of all keys of an organization, in pages and filtered', async () => {
    const ids = [
      await run(mine.key, { code: 'true' }),
      await run(mine.otherKey, { code: 'exit 1' }),
      await run(mine.key, { code: 'echo x >f', thread_id: 'a' }),
    ]
    await run(other.key, { code: 'true' })
    const list = async (query: string, token = tokens.member!) =>
      (await get(`/admin/v1/orgs/${mine.id}/executions?${query}`, bearer(token))).body
    const first = await list('limit=2')
    expect(first.data.map(({ trace_id: id }) => id)).toEqual([ids[2], ids[1]])
    const rest = await list(`limit=2&cursor=${first.next_cursor}`)
    expect(rest).toMatchObject({ data: [{ trace_id: ids[0], status: 'success' }], next_cursor: null })
    const { key_id: keyId } = first.data[1]!
    expect(await list(`key_id=${keyId}`)).toMatchObject({ data: [{ trace_id: ids[1], key_id: keyId }] })
    expect((await list('thread_id=a', mine.token)).data).toHaveLength(1)
    expect((await get(`/admin/v1/orgs/${other.id}/executions`, bearer(mine.token))).status).toBe(404)
  })

  it('read a run and a file of any key if they are more than members, and the audit log records it', async () => {
    const id = await run(mine.key, { code: 'mkdir -p d && echo kept >d/f && echo printed', thread_id: 'b' })
    const org = `/admin/v1/orgs/${mine.id}`
    const content = `${org}/threads/b/content?path=d/f`
    for (const path of [`${org}/executions/${id}`, content, `${org}/threads/b/files`])
      expect([path, (await get(path, bearer(tokens.member!))).status]).toEqual([path, 403])
    expect((await get(`${org}/executions/${id}`, bearer(tokens.admin!))).body).toMatchObject({ stdout: 'printed\n' })
    expect((await get(`${org}/threads`, bearer(tokens.member!))).body.data).toContainEqual(
      expect.objectContaining({ id: 'b', busy: false }),
    )
    const listed = await get(`${org}/threads/b/files?path=d`, bearer(mine.token))
    expect(listed.body.files).toMatchObject([{ name: 'f', kind: 'file', size: 5 }])
    const file = await fetch(front.url + content, { headers: bearer(mine.token) })
    expect(await file.text()).toBe('kept\n')
    expect(Object.fromEntries(file.headers)).toMatchObject({
      'content-disposition': 'attachment; filename="f"',
      'content-security-policy': expect.stringContaining('sandbox'),
      'content-length': '5',
    })
    const { rows } = await front.store.audit.list({ orgId: mine.id } as never, 0, 1_000)
    expect(rows.map(({ action, target }) => `${action} ${target}`)).toEqual(
      expect.arrayContaining([`run.read ${id}`, 'file.read b']),
    )
    for (const path of ['../f', '/etc/passwd', 'd'])
      expect(
        (await get(`${org}/threads/b/content?path=${encodeURIComponent(path)}`, bearer(mine.token))).status,
      ).not.toBe(200)
  })

  it('follow the output of a run of any key while it appears', async () => {
    const running = run(mine.key, { code: 'echo begun; sleep 1; echo over' })
    const list = async () =>
      (await get(`/admin/v1/orgs/${mine.id}/executions?status=running`, bearer(mine.token))).body.data
    await expect.poll(async () => (await list()).length, { timeout: 10_000 }).toBe(1)
    const [{ trace_id: id }] = (await list()) as [Answer['data'][number]]
    const path = `/admin/v1/orgs/${mine.id}/executions/${id}/output`
    expect((await get(path, bearer(tokens.member!))).status).toBe(403)
    expect((await get(path, bearer(other.token))).status).toBe(404)
    const { text } = await get(path, bearer(mine.token))
    const lines = text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { type: string; data?: string; status: string })
    expect(
      lines
        .filter(({ type }) => type === 'stdout')
        .map(({ data }) => data)
        .join(''),
    ).toBe('begun\nover\n')
    expect(lines.at(-1)).toMatchObject({ type: 'result', status: 'success' })
    await running
  })

  it('follow the runs of all keys, of their organization alone if they belong to one', async () => {
    const events = await follow(mine.token)
    await run(other.key, { code: 'true' })
    const id = await run(mine.otherKey, { code: 'true' })
    await expect.poll(() => events.seen.length, { timeout: 10_000 }).toBe(2)
    expect(events.seen).toMatchObject([
      { trace_id: id, change: 'began' },
      { trace_id: id, change: 'ended', org_id: mine.id },
    ])
    events.end()
    // A reader that connects again gets what it has missed.
    const again = await follow(tokens.member!, `?after=${events.before()}`)
    await expect.poll(() => again.seen, { timeout: 10_000 }).toMatchObject([{ trace_id: id, change: 'ended' }])
    again.end()
    const missed = await follow(tokens.member!, '?after=999999-0')
    await expect.poll(() => missed.text(), { timeout: 10_000 }).toContain('event: reset')
    missed.end()
  })

  it('follow the changes of sandboxes and keys, and members those of sandboxes', async () => {
    const [all, members] = [await follow(tokens.owner!), await follow(tokens.member!)]
    const name = { name: 'followed' }
    const made = await front.post('/v1/sandboxes', name, { 'x-api-key': mine.key })
    const { id } = (await made.json()) as { id: string }
    expect((await get(`/admin/v1/orgs/${mine.id}/sandboxes`, bearer(tokens.member!))).body.data).toMatchObject([
      { id, name: 'followed', state: 'running', key_id: expect.stringMatching(/^key_/) },
    ])
    expect((await get(`/admin/v1/orgs/${other.id}/sandboxes`, bearer(mine.token))).status).toBe(404)
    await newOrg('made meanwhile')
    await fetch(`${front.url}/v1/sandboxes/followed`, { method: 'DELETE', headers: { 'x-api-key': mine.key } })
    const removed = { action: 'sandbox.remove', target: id, org_id: mine.id }
    for (const events of [all, members])
      await expect.poll(() => events.actions, { timeout: 10_000 }).toContainEqual(expect.objectContaining(removed))
    const kinds = (events: typeof all) => new Set(events.actions.map(({ action }) => action.split('.')[0]))
    expect(kinds(members)).toEqual(new Set(['sandbox']))
    expect(kinds(all)).toEqual(new Set(['sandbox', 'org', 'key', 'token']))
    for (const events of [all, members]) events.end()
  })

  it('follow them no longer when their token is revoked', async () => {
    const { id, secret } = await newToken('member')
    const events = await follow(secret)
    await revokeToken(front.core.adminContext, operator, id)
    await expect.poll(() => events.hasEnded(), { timeout: 10_000 }).toBe(true)
  })

  /** Reads the stream of changes in the background. */
  async function follow(token: string, query = '') {
    const stop = new AbortController()
    const response = await fetch(`${front.url}/admin/v1/changes${query}`, {
      headers: bearer(token),
      signal: stop.signal,
    })
    expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/event-stream'])
    let text = ''
    let hasEnded = false
    void (async () => {
      for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) text += piece
    })()
      .catch(() => {})
      .finally(() => (hasEnded = true))
    return {
      get actions() {
        return [...text.matchAll(/^event: action\ndata: (.*)$/gm)].map(
          ([, data]) => JSON.parse(data!) as { action: string; target: string; org_id: string | null },
        )
      },
      get seen() {
        return [...text.matchAll(/^data: (\{"trace.*\})$/gm)].map(([, data]) => JSON.parse(data!) as object)
      },
      /** The place before the last event of a run. */
      before: () => {
        const [, run, audit] = [...text.matchAll(/^id: (\d+)-(\d+)\ndata: \{"trace/gm)].at(-1)!
        return `${Number(run) - 1}-${audit}`
      },
      text: () => text,
      hasEnded: () => hasEnded,
      end: () => stop.abort(),
    }
  }
})

describe('the latest changes', () => {
  const numbers = (changes: ReturnType<RunChanges['after']>) => changes?.map(({ seq }) => seq)

  it('are bounded, and name what a slow reader has missed', () => {
    const changes = new RunChanges()
    for (let run = 0; run < 1_500; run++) changes.add({ id: `trc_${run}`, orgId: 'org', keyId: 'key' }, 'began')
    for (const orgId of [null, 'org']) {
      expect(changes.after(100, orgId)).toBeUndefined()
      expect(changes.after(1_500, orgId)).toEqual([])
      expect(numbers(changes.after(1_498, orgId))).toEqual([1_499, 1_500])
      expect(changes.after(500, orgId)).toHaveLength(1_000)
      expect(changes.after(499, orgId)).toBeUndefined()
      expect(changes.after(1_501, orgId)).toBeUndefined()
    }
  })

  it('of an organization are kept beside one with many runs, and beside many organizations', () => {
    const changes = new RunChanges()
    const add = (orgId: string) => changes.add({ id: 'trc', orgId, keyId: 'key' }, 'began')
    add('quiet')
    for (let run = 0; run < 2_000; run++) add('busy')
    add('quiet')
    expect(numbers(changes.after(0, 'quiet'))).toEqual([1, 2_002])
    expect(numbers(changes.after(2_000, null))).toEqual([2_001, 2_002])
    expect(changes.after(0, null)).toBeUndefined()
    for (let org = 0; org < 500; org++) add(`org_${org}`)
    expect(changes.after(0, 'quiet')).toBeUndefined()
    expect(numbers(changes.after(2_500, null))).toEqual([2_501, 2_502])
  })
})

describe('a login', () => {
  const login = (token: string, headers: Record<string, string> = {}) =>
    front.post('/console/login', {}, { ...bearer(token), ...headers })

  async function loggedIn(token: string) {
    const response = await login(token)
    const { csrf_token: csrf } = (await response.json()) as { csrf_token: string }
    return { cookie: response.headers.get('set-cookie')!.split(';')[0]!, csrf }
  }

  it('sets a cookie that scripts and other sites cannot use', async () => {
    const plain = (await login(tokens.admin!)).headers.get('set-cookie')!
    expect(plain).toMatch(/^glovebox-login=[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=\d+$/)
    const secure = (await login(tokens.admin!, { 'x-forwarded-for': '192.0.2.1', 'x-forwarded-proto': 'https' }))
      .headers
    expect(secure.get('set-cookie')).toMatch(/^__Host-glovebox-login=\S+; Path=\/; HttpOnly; SameSite=Strict; Secure;/)
    const { rows } = await front.store.audit.list({ action: 'console.login' } as never, 0, 10)
    expect(rows.length).toBeGreaterThan(0)
  })

  it('has the rights of its token, and changes nothing without the CSRF token', async () => {
    const { cookie, csrf } = await loggedIn(tokens.admin!)
    expect((await get('/console/login', { cookie })).body).toMatchObject({ role: 'admin', csrf_token: csrf })
    expect((await get('/admin/v1/orgs', { cookie })).status).toBe(200)
    expect((await get('/admin/v1/tokens', { cookie })).status).toBe(403)
    const org = { name: 'made in the console' }
    const make = async (headers: Record<string, string>) => (await front.post('/admin/v1/orgs', org, headers)).status
    expect(await make({ cookie })).toBe(403)
    expect(await make({ cookie, 'x-csrf-token': 'x'.repeat(43) })).toBe(403)
    expect(await make({ cookie, 'x-csrf-token': csrf, origin: 'https://evil.example' })).toBe(403)
    expect(await make({ cookie, 'x-csrf-token': csrf, 'sec-fetch-site': 'same-site' })).toBe(403)
    expect(await make({ cookie, 'x-csrf-token': csrf })).toBe(201)
    const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'system_get_health' } }
    expect((await front.post('/runtime/rpc', call, { cookie })).status).toBe(403)
    expect((await front.post('/runtime/rpc', call, { cookie, 'x-csrf-token': csrf })).status).toBe(200)
    // It is no key.
    expect((await front.post('/v1/sandbox/execute', { code: '1' }, { cookie, 'x-csrf-token': csrf })).status).toBe(401)
    // It does not prolong itself.
    expect((await front.post('/console/login', {}, { cookie, 'x-csrf-token': csrf })).status).toBe(401)
  })

  it('ends with the token, or when the browser logs out', async () => {
    const { id, secret } = await newToken('member')
    const first = await loggedIn(secret)
    expect((await get('/admin/v1/orgs', { cookie: first.cookie })).status).toBe(200)
    const out = await fetch(`${front.url}/console/login`, {
      method: 'DELETE',
      headers: { cookie: first.cookie, 'x-csrf-token': first.csrf },
    })
    expect([out.status, out.headers.get('set-cookie')]).toEqual([204, expect.stringContaining('Max-Age=0')])
    expect((await get('/admin/v1/orgs', { cookie: first.cookie })).body).toMatchObject({ code: 'login_expired' })
    const second = await loggedIn(secret)
    await revokeToken(front.core.adminContext, operator, id)
    expect((await get('/admin/v1/orgs', { cookie: second.cookie })).status).toBe(401)
  })

  it('cannot be guessed: failures are limited, and a valid token is still accepted', async () => {
    const statuses: number[] = []
    for (let attempt = 0; attempt < 6; attempt++) statuses.push((await login(`gba_${'x'.repeat(43)}`)).status)
    expect(statuses).toEqual([401, 401, 401, 429, 429, 429])
    expect((await login(tokens.member!)).status).toBe(200)
  })

  it('is one of a bounded number of each token', () => {
    const logins = new Logins()
    const begun = Array.from({ length: 17 }, () => logins.begin('tok_1', 'gba_secret'))
    expect(begun.map(({ login: { hasEnded } }) => hasEnded)).toEqual([true, ...Array(16).fill(false)])
    const cookie = `other=1; glovebox-login=${begun[16]!.secret}`
    expect(logins.find({ cookie }, 'GET')).toBe(begun[16]!.login)
    expect(() => logins.find({ cookie }, 'DELETE')).toThrow('CSRF')
    expect(() => logins.find({ cookie: `glovebox-login=${begun[0]!.secret}` }, 'GET')).toThrow('login')
    expect(logins.find({ cookie: 'other=1' }, 'POST')).toBeUndefined()
  })
})

describe('the console', () => {
  it('shows nothing without a login, and runs only files of this server', async () => {
    const response = await fetch(`${front.url}/console`)
    const text = await response.text()
    expect(response.headers.get('content-security-policy')).toContain("default-src 'none'; script-src 'self'")
    expect(response.headers.get('content-security-policy')).not.toContain('unsafe')
    expect(text).not.toContain(mine.id)
    expect(text).not.toMatch(/<script(?![^>]* src=)|<style|\son\w+=|\sstyle=/)
    for (const [, path] of text.matchAll(/(?:src|href)="(assets\/[^"]+)"/g))
      expect([path, (await fetch(`${front.url}/${path}`)).status]).toEqual([path, 200])
    const moved = await fetch(`${front.url}/console/`, { redirect: 'manual' })
    expect([moved.status, moved.headers.get('location')]).toEqual([308, '../console'])
  })

  it('finds the documentation, and no other files', async () => {
    expect((await get('/docs/runtime', {})).text).toContain('<h1 id="runtime">Runtime</h1>')
    expect((await get('/docs/runtime', {})).text).toContain('<a href="runtime-tools">')
    for (const path of ['..%2FREADME', 'nothing', 'runtime.md'])
      expect((await get(`/docs/${path}`, {})).status).toBe(404)
  })
})
