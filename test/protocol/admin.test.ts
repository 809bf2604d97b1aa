import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator, type Role, roles } from '../../src/core/admin/admin.ts'
import { createToken } from '../../src/core/admin/tokens.ts'
import { type Front, openFront } from '../support/front.ts'

let front: Front
const tokens: Partial<Record<Role, string>> = {}

beforeAll(async () => {
  front = await openFront(undefined, { dev: false, trustedProxies: ['127.0.0.1'] })
  for (const role of roles) tokens[role] = await newToken(role)
})
afterAll(() => front.close())

const newToken = async (role: Role, orgId: string | null = null) =>
  (await createToken(front.core.adminContext, operator, { name: role, role, org_id: orgId })).secret

interface Answer {
  status: number
  body: Body
}

/** The fields of an answer that these tests read. */
interface Body {
  id: string
  secret: string
  name: string
  message: string
  env_names: string[]
  data: { id: string; run_seconds: number }[]
  next_cursor: string | null
}

/** Each call has its own client address, so that failures in one test do not count in another. */
let addresses = 0
const from = () => {
  addresses += 1
  return { 'x-forwarded-for': `198.51.${addresses >> 8}.${addresses & 255}` }
}

async function call(method: string, path: string, body?: unknown, secret = tokens.owner): Promise<Answer> {
  const response = await fetch(`${front.url}${path}`, {
    method,
    headers: {
      ...(secret && { authorization: `Bearer ${secret}` }),
      ...from(),
      ...((body !== undefined || method === 'POST') && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  return { status: response.status, body: (text === '' ? {} : JSON.parse(text)) as Body }
}

let names = 0
const newOrg = async (): Promise<string> => (await call('POST', '/admin/v1/orgs', { name: `org ${++names}` })).body.id

const newKey = async (org: string, settings: object = {}): Promise<{ id: string; secret: string }> =>
  (await call('POST', `/admin/v1/orgs/${org}/keys`, settings)).body

const run = (secret: string, code = 'echo hello', more: object = {}) =>
  front.post('/v1/sandbox/execute', { language: 'bash', code, ...more }, { 'x-api-key': secret, ...from() })

const stdoutOf = async (secret: string, code: string, more: object = {}): Promise<string> =>
  ((await (await run(secret, code, more)).json()) as { stdout: string }).stdout

describe('the admin API', () => {
  it('accepts admin tokens but no API keys, and the other API accepts no admin tokens', async () => {
    const { secret } = await newKey(await newOrg())
    expect((await call('GET', '/admin/v1/orgs', undefined, secret)).status).toBe(401)
    expect((await call('GET', '/admin/v1/orgs', undefined, '')).status).toBe(401)
    expect((await call('GET', '/admin/v1/orgs', undefined, `${tokens.owner}x`)).status).toBe(401)
    expect((await run(tokens.owner!)).status).toBe(401)
    expect(
      (await front.post('/v1/mcp', { jsonrpc: '2.0', id: 1, method: 'ping' }, { 'x-api-key': tokens.owner! })).status,
    ).toBe(401)
  })

  it('requires a token in development mode, too', async () => {
    const dev = await openFront()
    try {
      expect((await fetch(`${dev.url}/admin/v1/orgs`)).status).toBe(401)
    } finally {
      await dev.close()
    }
  })

  it('rejects a token once it is revoked or expired', async () => {
    const made = await call('POST', '/admin/v1/tokens', { name: 'short', role: 'member' })
    expect(made.status).toBe(201)
    expect((await call('GET', '/admin/v1/orgs', undefined, made.body.secret)).status).toBe(200)
    expect((await call('DELETE', `/admin/v1/tokens/${made.body.id}`)).status).toBe(204)
    expect((await call('GET', '/admin/v1/orgs', undefined, made.body.secret)).status).toBe(401)
    expect((await call('DELETE', `/admin/v1/tokens/${made.body.id}`)).status).toBe(404)
    const past = await call('POST', '/admin/v1/tokens', {
      name: 'x',
      role: 'member',
      expires_at: '2020-01-01T00:00:00Z',
    })
    expect(past).toMatchObject({ status: 400, body: { message: expect.stringContaining('expires_at') } })
  })

  it('names the invalid field or parameter', async () => {
    const org = await newOrg()
    const wrong: [string, string, unknown, string][] = [
      ['POST', '/admin/v1/orgs', {}, 'name'],
      ['POST', '/admin/v1/orgs', { name: 'a\nb' }, 'name'],
      ['POST', '/admin/v1/orgs', { name: 'x', role: 1 }, 'role'],
      ['POST', `/admin/v1/orgs/${org}/keys`, { profile: 'none' }, 'profile'],
      ['POST', `/admin/v1/orgs/${org}/keys`, { tools: ['rm'] }, 'tools'],
      ['POST', `/admin/v1/orgs/${org}/keys`, { env_vars: { PATH: '/x' } }, 'env_vars'],
      ['POST', `/admin/v1/orgs/${org}/keys`, { expires_at: 'soon' }, 'expires_at'],
      ['POST', `/admin/v1/orgs/${org}/profiles`, { name: 'Big' }, 'name'],
      ['POST', `/admin/v1/orgs/${org}/profiles`, { name: 'big', settings: { limit_memory: 'much' } }, 'limit_memory'],
      ['POST', `/admin/v1/orgs/${org}/profiles`, { name: 'big', settings: { port: 1 } }, 'port'],
      ['POST', `/admin/v1/orgs/${org}/profiles`, { name: 'big', settings: { preload: ['os'] } }, 'preload'],
      ['PUT', `/admin/v1/orgs/${org}/limits`, { runs_per_minute: -1 }, 'runs_per_minute'],
      ['GET', `/admin/v1/orgs?limit=0`, undefined, 'limit'],
      ['GET', `/admin/v1/orgs?cursor=x`, undefined, 'cursor'],
      ['GET', `/admin/v1/orgs?page=2`, undefined, 'page'],
      ['GET', `/admin/v1/orgs/${org}/usage?from=today`, undefined, 'from'],
      ['GET', `/admin/v1/orgs/${org}/usage?from=2027-02-30`, undefined, 'from'],
    ]
    for (const [method, path, body, field] of wrong) {
      const answer = await call(method, path, body)
      expect([path, answer.status, answer.body.message]).toEqual([path, 400, expect.stringContaining(field)])
    }
  })
})

describe('admin roles', () => {
  /** The least role that each operation requires; with `org` a token of that organization is enough. */
  const acts: [string, string, object | undefined, Role, 'org' | 'instance'][] = [
    ['GET', '/admin/v1/orgs/:org', undefined, 'member', 'org'],
    ['PATCH', '/admin/v1/orgs/:org', { name: 'renamed :n' }, 'admin', 'org'],
    ['POST', '/admin/v1/orgs', { name: 'new :n' }, 'admin', 'instance'],
    ['GET', '/admin/v1/orgs/:org/keys', undefined, 'member', 'org'],
    ['POST', '/admin/v1/orgs/:org/keys', {}, 'admin', 'org'],
    ['GET', '/admin/v1/orgs/:org/keys/:key', undefined, 'member', 'org'],
    ['PATCH', '/admin/v1/orgs/:org/keys/:key', { name: 'n' }, 'admin', 'org'],
    ['POST', '/admin/v1/orgs/:org/keys/:key/rotate', {}, 'admin', 'org'],
    ['GET', '/admin/v1/orgs/:org/keys/:key/limits', undefined, 'member', 'org'],
    ['PUT', '/admin/v1/orgs/:org/keys/:key/limits', {}, 'admin', 'org'],
    ['GET', '/admin/v1/orgs/:org/profiles', undefined, 'member', 'org'],
    ['POST', '/admin/v1/orgs/:org/profiles', { name: 'p:n' }, 'admin', 'instance'],
    ['GET', '/admin/v1/orgs/:org/limits', undefined, 'member', 'org'],
    ['PUT', '/admin/v1/orgs/:org/limits', {}, 'admin', 'instance'],
    ['GET', '/admin/v1/orgs/:org/usage', undefined, 'member', 'org'],
    ['GET', '/admin/v1/orgs/:org/tools', undefined, 'member', 'org'],
    ['PUT', '/admin/v1/orgs/:org/tools/files_download', { shown: true }, 'admin', 'org'],
    ['GET', '/admin/v1/tokens', undefined, 'owner', 'instance'],
    ['POST', '/admin/v1/tokens', { name: 't', role: 'member' }, 'owner', 'instance'],
    ['DELETE', '/admin/v1/orgs/:org/keys/:key', undefined, 'admin', 'org'],
  ]

  it.each(acts)('authorize %s %s from the least role upwards', async (method, path, body, least, scope) => {
    const org = await newOrg()
    const other = await newOrg()
    const { id: key } = await newKey(org)
    const filled = path.replace(':org', org).replace(':key', key)
    const ask = (secret: string) => {
      names += 1
      return call(method, filled, body && JSON.parse(JSON.stringify(body).replaceAll(':n', `${names}`)), secret)
    }
    for (const role of roles) {
      const isEnough = roles.indexOf(role) <= roles.indexOf(least)
      const ofOrg = await newToken(role, org)
      expect([role, (await ask(tokens[role]!)).status]).toEqual([role, isEnough ? expect.any(Number) : 403])
      if (isEnough) expect((await ask(tokens[role]!)).status).toBeLessThan(300)
      const own = await ask(ofOrg)
      if (isEnough && scope === 'org') expect(own.status).toBeLessThan(300)
      else expect([role, own.status]).toEqual([role, 403])
      if (path.includes(':org')) expect((await ask(await newToken(role, other))).status).toBe(404)
    }
  })
})

describe('an organization', () => {
  it('has a unique name, and is listed page by page', async () => {
    const org = await newOrg()
    const { body } = await call('GET', `/admin/v1/orgs/${org}`)
    expect(await call('POST', '/admin/v1/orgs', { name: body.name })).toMatchObject({
      status: 409,
      body: { error: 'conflict' },
    })
    const other = await newOrg()
    expect((await call('PATCH', `/admin/v1/orgs/${other}`, { name: body.name })).status).toBe(409)
    expect((await call('PATCH', `/admin/v1/orgs/${other}`, { name: `${body.name}b` })).body.name).toBe(`${body.name}b`)
    const listed: string[] = []
    for (let cursor = ''; ; ) {
      const page = await call('GET', `/admin/v1/orgs?limit=3${cursor && `&cursor=${cursor}`}`)
      expect(page.body.data.length).toBeLessThanOrEqual(3)
      listed.push(...page.body.data.map(({ id }) => id))
      if (page.body.next_cursor === null) break
      cursor = page.body.next_cursor
    }
    expect(new Set(listed).size).toBe(listed.length)
    expect(listed).toContain(org)
    expect((await call('GET', '/admin/v1/orgs/org_none')).status).toBe(404)
  })

  it('disables a tool for all its keys', async () => {
    const org = await newOrg()
    const { secret } = await newKey(org)
    const tools = () => front.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/list' }, { 'x-api-key': secret })
    expect(await (await tools()).text()).toContain('sandbox_execute')
    expect((await call('PUT', `/admin/v1/orgs/${org}/tools/sandbox_execute`, { shown: false })).status).toBe(200)
    await expect.poll(async () => (await tools()).text(), { timeout: 10_000 }).not.toContain('"sandbox_execute"')
    expect((await run(secret)).status).toBe(403)
    expect((await call('PUT', `/admin/v1/orgs/${org}/tools/rm`, { shown: false })).status).toBe(404)
  })
})

describe('a key', () => {
  it('has encrypted variables that override those of its profile and are overridden by those of a call', async () => {
    const org = await newOrg()
    const env = { FROM_PROFILE: 'key', OWN: 'very-secret-value' }
    const { id, secret } = await newKey(org, { env_vars: env })
    expect(await stdoutOf(secret, 'echo $FROM_PROFILE $OWN')).toBe('key very-secret-value\n')
    expect(await stdoutOf(secret, 'echo $FROM_PROFILE $OWN', { env_vars: { OWN: 'call' } })).toBe('key call\n')
    expect(JSON.stringify(await front.store.keys.get(id))).not.toContain('very-secret')
    expect((await call('GET', `/admin/v1/orgs/${org}/keys/${id}`)).body.env_names).toEqual(['FROM_PROFILE', 'OWN'])
    await call('PATCH', `/admin/v1/orgs/${org}/keys/${id}`, { env_vars: {} })
    expect(await stdoutOf(secret, 'echo $FROM_PROFILE $OWN')).toBe('profile\n')
    for await (const line of front.lines) expect(line).not.toContain('very-secret')
  })

  it('is limited to its tools, over MCP and REST', async () => {
    const { secret } = await newKey(await newOrg(), { tools: ['execution_get'] })
    expect((await run(secret)).status).toBe(403)
    const list = await front.post(
      '/mcp?toolsets=execute,executions',
      { jsonrpc: '2.0', id: 1, method: 'tools/list' },
      { 'x-api-key': secret },
    )
    const { result } = (await list.json()) as { result: { tools: { name: string }[] } }
    expect(result.tools.map(({ name }) => name)).toEqual(['execution_get'])
  })

  it('is rotated, and its previous secret stays valid for the stated time', async () => {
    const org = await newOrg()
    const first = await newKey(org)
    const path = `/admin/v1/orgs/${org}/keys/${first.id}/rotate`
    const second = (await call('POST', path, { overlap_seconds: 600 })).body
    expect([(await run(first.secret)).status, (await run(second.secret)).status]).toEqual([200, 200])
    const third = (await call('POST', path)).body
    const statuses = await Promise.all([first, second, third].map(async ({ secret }) => (await run(secret)).status))
    expect(statuses).toEqual([401, 401, 200])
  })

  it('is rejected once expired, and its running executions are cancelled', async () => {
    const org = await newOrg()
    const { id, secret } = await newKey(org)
    const going = run(secret, 'sleep 60')
    await expect.poll(async () => (await front.store.runs.unfinished()).length, { timeout: 10_000 }).toBe(1)
    await call('PATCH', `/admin/v1/orgs/${org}/keys/${id}`, { expires_at: new Date(Date.now() + 700).toISOString() })
    expect(await (await going).json()).toMatchObject({ status: 'cancelled' })
    expect((await run(secret)).status).toBe(401)
    expect((await call('POST', `/admin/v1/orgs/${org}/keys/${id}/rotate`, {})).status).toBe(409)
  })

  it('stays as it is when nothing is changed', async () => {
    const org = await newOrg()
    const { id } = await newKey(org)
    const path = `/admin/v1/orgs/${org}/keys/${id}`
    const before = await call('GET', path)
    expect(await call('PATCH', path, {})).toMatchObject({ status: 200, body: before.body })
  })

  it('cannot be restored once revoked', async () => {
    const org = await newOrg()
    const { id, secret } = await newKey(org)
    expect((await call('DELETE', `/admin/v1/orgs/${org}/keys/${id}`)).status).toBe(204)
    expect((await call('DELETE', `/admin/v1/orgs/${org}/keys/${id}`)).status).toBe(204)
    expect((await run(secret)).status).toBe(401)
    expect((await call('PATCH', `/admin/v1/orgs/${org}/keys/${id}`, { name: 'x' })).status).toBe(409)
    const other = await newOrg()
    expect((await call('GET', `/admin/v1/orgs/${other}/keys/${id}`)).status).toBe(404)
  })
})

describe('an image', () => {
  it('is not removed while a profile of an organization or a stopped sandbox names it', async () => {
    const { imageNames } = front.runner
    for (const name of ['team/tools', 'team/box']) imageNames.add(name)
    const org = await newOrg()
    const remove = (name: string) => call('DELETE', `/admin/v1/images/${encodeURIComponent(name)}`)
    const profiles = `/admin/v1/orgs/${org}/profiles`
    await call('POST', profiles, { name: 'tools', settings: { image: 'team/tools' } })
    expect(await remove('team/tools')).toMatchObject({
      status: 409,
      body: { message: expect.stringContaining('profile tools') },
    })
    expect((await remove('img_team/tools')).status).toBe(409)
    await call('DELETE', `${profiles}/tools`)
    expect((await remove('team/tools')).status).toBe(204)

    const headers = { 'x-api-key': (await newKey(org)).secret, ...from() }
    expect((await front.post('/v1/sandboxes', { name: 'box', image: 'team/box' }, headers)).status).toBe(201)
    await front.post('/v1/sandboxes/box/stop', {}, headers)
    expect(await remove('team/box')).toMatchObject({
      status: 409,
      body: { message: expect.stringContaining('sandbox sbx') },
    })
    await fetch(`${front.url}/v1/sandboxes/box`, { method: 'DELETE', headers })
    expect((await remove('team/box')).status).toBe(204)
    expect(await remove('team/box')).toMatchObject({ status: 404 })
  })
})

describe('a profile of an organization', () => {
  it('applies to its keys within a second of every change, and keeps its variables encrypted', async () => {
    const org = await newOrg()
    const path = `/admin/v1/orgs/${org}/profiles`
    const settings = { languages: ['bash'], default_language: 'bash', env: { SECRET: 'hidden-value' } }
    const made = await call('POST', path, { name: 'shell', settings })
    expect(made).toMatchObject({ status: 201, body: { name: 'shell', env_names: ['SECRET'] } })
    expect(JSON.stringify(made.body)).not.toContain('hidden-value')
    expect((await call('POST', path, { name: 'shell' })).status).toBe(409)
    expect((await call('POST', path, { name: 'default' })).status).toBe(409)
    const { id, secret } = await newKey(org, { profile: 'shell' })
    expect(await stdoutOf(secret, 'echo $SECRET')).toBe('hidden-value\n')
    expect((await run(secret, '1', { language: 'python' })).status).toBe(400)
    await call('PUT', `${path}/shell`, { settings: { ...settings, env: { SECRET: 'other' } } })
    await expect.poll(() => stdoutOf(secret, 'echo $SECRET'), { timeout: 10_000 }).toBe('other\n')
    expect((await call('DELETE', `${path}/shell`)).status).toBe(409)
    await call('DELETE', `/admin/v1/orgs/${org}/keys/${id}`)
    expect((await call('DELETE', `${path}/shell`)).status).toBe(204)
    expect((await call('GET', `${path}/shell`)).status).toBe(404)
    expect(JSON.stringify(await front.store.storedProfiles.all())).not.toContain('hidden')
  })

  it('does not exist for another organization', async () => {
    const [one, other] = [await newOrg(), await newOrg()]
    await call('POST', `/admin/v1/orgs/${one}/profiles`, { name: 'mine' })
    expect((await call('POST', `/admin/v1/orgs/${other}/keys`, { profile: 'mine' })).status).toBe(400)
    expect((await call('GET', `/admin/v1/orgs/${other}/profiles/mine`)).status).toBe(404)
  })
})

describe('a limit', () => {
  const limited = async (amounts: object, owner: 'org' | 'key') => {
    const org = await newOrg()
    const { id, secret } = await newKey(org)
    const path = `/admin/v1/orgs/${org}${owner === 'key' ? `/keys/${id}` : ''}/limits`
    expect((await call('PUT', path, amounts)).status).toBe(200)
    expect((await call('GET', path)).body).toEqual(amounts)
    return { org, id, secret }
  }

  it.each(['org', 'key'] as const)('on runs per minute of an %s holds for fifty at once', async (owner) => {
    const { secret } = await limited({ runs_per_minute: 5 }, owner)
    const answers = await Promise.all(Array.from({ length: 50 }, () => run(secret, 'true')))
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(5)
    const refused = answers.filter(({ status }) => status === 429)
    expect(refused).toHaveLength(45)
    expect(Number(refused[0]!.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(await refused[0]!.json()).toMatchObject({
      error: 'rate_limited',
      message: expect.stringContaining('runs_per_minute'),
    })
  })

  it('on parallel runs includes detached runs', async () => {
    const { secret } = await limited({ concurrent_runs: 2 }, 'key')
    const going = [run(secret, 'sleep 1'), run(secret, 'sleep 1')]
    await expect.poll(async () => (await front.store.runs.unfinished()).length, { timeout: 10_000 }).toBe(2)
    const refused = await run(secret, 'true')
    expect([refused.status, await refused.text()]).toEqual([429, expect.stringContaining('concurrent_runs')])
    await Promise.all(going)
    expect((await run(secret, 'true')).status).toBe(200)
  })

  it('on run seconds per day includes finished runs, also from before this front started', async () => {
    const { org, id, secret } = await limited({ run_seconds_per_day: 1 }, 'org')
    expect((await run(secret, 'sleep 1.1')).status).toBe(200)
    const refused = await run(secret, 'true')
    expect([refused.status, await refused.text()]).toEqual([429, expect.stringContaining('run_seconds_per_day')])
    const { body } = await call('GET', `/admin/v1/orgs/${org}/usage`)
    expect(body.data).toMatchObject([{ key_id: id, runs: 1, run_seconds: expect.any(Number) }])
    expect(body.data[0]?.run_seconds).toBeGreaterThan(1)
  })

  it('rejects a call without leaving a row, and no longer applies once removed', async () => {
    const { org, secret } = await limited({ runs_per_minute: 0 }, 'org')
    expect((await run(secret)).status).toBe(429)
    expect(await front.store.runs.unfinished()).toEqual([])
    await call('PUT', `/admin/v1/orgs/${org}/limits`, {})
    await expect.poll(async () => (await run(secret)).status, { timeout: 10_000 }).toBe(200)
  })
})

describe('the audit log', () => {
  it('has an entry for every admin operation, without secrets', async () => {
    const org = await newOrg()
    const { id, secret } = await newKey(org, { env_vars: { TOKEN: 'audit-secret' } })
    await call('PUT', `/admin/v1/orgs/${org}/keys/${id}/limits`, { concurrent_runs: 3 })
    await call('DELETE', `/admin/v1/orgs/${org}/keys/${id}`)
    const { rows: lines } = await front.store.audit.list({ orgId: org }, 0, 100)
    expect(lines.map(({ action }) => action)).toEqual(['org.create', 'key.create', 'limits.set', 'key.revoke'])
    expect(lines.every(({ actor }) => actor.startsWith('tok_'))).toBe(true)
    expect(JSON.stringify(lines)).not.toContain('audit-secret')
    expect(JSON.stringify(lines)).not.toContain(secret)
  })

  it('has no entry for a rejected operation', async () => {
    const org = await newOrg()
    await call('POST', `/admin/v1/orgs/${org}/profiles`, { name: 'twice' })
    await call('POST', `/admin/v1/orgs/${org}/profiles`, { name: 'twice' })
    const { rows: lines } = await front.store.audit.list({ orgId: org, action: 'profile.create' }, 0, 100)
    expect(lines).toHaveLength(1)
  })
})
