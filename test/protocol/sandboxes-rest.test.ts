import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { runProgram } from '../../src/cli/program.ts'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey, revokeKey } from '../../src/core/admin/keys.ts'
import { setLimits } from '../../src/core/admin/limits.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { productInventory } from '../../src/tools/catalog.ts'
import { withCommandIo } from '../support/command-io.ts'
import { type Front, openFront } from '../support/front.ts'

const MiB = 1024 * 1024

let front: Front
let org: string
let key: string
beforeAll(async () => {
  front = await openFront(undefined, { dev: false, trustedProxies: ['127.0.0.1'] })
  org = (await createOrg(front.core.adminContext, operator, 'sandboxes')).id
  key = await newKey(org)
})
afterAll(() => front.close())

const toolNames = productInventory.tools.map(({ name }) => name)

const newKey = async (orgId: string, namespaces: string[] | null = null): Promise<string> =>
  (await createKey(front.core.adminContext, operator, orgId, { namespaces }, toolNames)).secret

interface Answer {
  status: number
  /** The test says what it has. */
  body: ReturnType<typeof JSON.parse>
}

async function call(method: string, path: string, body?: unknown, secret = key): Promise<Answer> {
  const response = await fetch(front.url + path, {
    method,
    headers: { 'x-api-key': secret, ...(method === 'POST' && { 'content-type': 'application/json' }) },
    ...(method === 'POST' && { body: JSON.stringify(body ?? {}) }),
  })
  const text = await response.text()
  return { status: response.status, body: text === '' ? null : JSON.parse(text) }
}

const post = (path: string, body?: unknown, secret?: string) => call('POST', path, body, secret)
const get = (path: string, secret?: string) => call('GET', path, undefined, secret)

describe('a named sandbox over REST', () => {
  it('is created with the defaults of the profile, and started', async () => {
    const { status, body } = await post('/v1/sandboxes', { name: 'first', metadata: { case: '7' } })
    expect(status).toBe(201)
    expect(body).toMatchObject({
      ...{ name: 'first', namespace: 'default', state: 'running', image: null, memory_bytes: 512 * MiB, cpus: 1 },
      ...{ disk_bytes: 64 * MiB, workdir: '/workspace', user: 'root', metadata: { case: '7' }, on_crash: 'stay' },
      ...{ on_end: 'stop', idle_timeout: null, lifetime: null, expires_at: null, restarts: 0 },
    })
    expect((await get('/v1/sandboxes/first')).body.id).toBe(body.id)
    expect((await get(`/v1/sandboxes/${body.id}`)).body.name).toBe('first')
  })

  it('has a name of its own if none is given', async () => {
    const { body } = await post('/v1/sandboxes', {})
    expect(body.name).toMatch(/^sandbox-[0-9a-f]{8}$/)
    expect((await call('DELETE', `/v1/sandboxes/${body.name}`)).status).toBe(204)
    expect((await get(`/v1/sandboxes/${body.id}`)).status).toBe(404)
  })

  it('exists once in its namespace', async () => {
    expect(await post('/v1/sandboxes', { name: 'first' })).toMatchObject({
      status: 409,
      body: { code: 'sandbox_exists' },
    })
    expect((await post('/v1/sandboxes', { name: 'first', namespace: 'other' })).status).toBe(201)
  })

  const hostile = ['', '..', '.', 'a/b', '../x', '-rf', 'a b', 'a;id', '$(id)', 'a\0b', 'ä', 'x'.repeat(64), '_a', '\n']
  it.each([...hostile, `sbx${'0'.repeat(32)}`])('is refused with the name %j', async (name) => {
    expect(await post('/v1/sandboxes', { name })).toMatchObject({ status: 400, body: { code: 'invalid_argument' } })
    const namespaced = await post('/v1/sandboxes', { name: 'fine', namespace: name })
    expect(namespaced).toMatchObject({ status: 400, body: { code: 'invalid_argument' } })
  })

  it.each([
    ['memory_bytes', 2048 * MiB, 'memory'],
    ['memory_bytes', 1024, 'memory'],
    ['cpus', 64, 'cpus'],
    ['disk_bytes', 1, 'disk'],
    ['workdir', 'relative', 'workdir'],
    ['workdir', '/a/../b', 'workdir'],
    ['user', 'a b', 'user'],
    ['image', '-x', 'image'],
    ['volumes', ['none'], 'volumes'],
    ['idle_timeout', 1e9, 'idle_timeout'],
    ['metadata', { a: 'x'.repeat(2000) }, 'metadata'],
    ['env_vars', { PATH: '/x' }, 'env_vars'],
  ])('is refused with %s %j', async (field, value, named) => {
    const { status, body } = await post('/v1/sandboxes', { name: 'bad', [field]: value })
    expect([status, body.code]).toEqual([400, 'invalid_argument'])
    expect(body.message).toContain(named)
    expect((await get('/v1/sandboxes/bad')).status).toBe(404)
  })

  it('leaves nothing behind if its image does not exist', async () => {
    expect(await post('/v1/sandboxes', { name: 'odd', image: 'no/such' })).toMatchObject({
      status: 404,
      body: { code: 'image_unknown' },
    })
    expect((await get('/v1/sandboxes/odd')).status).toBe(404)
  })

  it('goes through its states', async () => {
    const states: string[] = []
    for (const verb of ['pause', 'pause', 'resume', 'stop', 'stop', 'start', 'start', 'restart', 'pause', 'start']) {
      states.push((await post(`/v1/sandboxes/first/${verb}`)).body.state)
    }
    expect(states).toEqual([
      ...['paused', 'paused', 'running', 'stopped', 'stopped', 'running', 'running', 'running', 'paused', 'running'],
    ])
  })

  it('cannot be resumed or used when it is stopped, and says so', async () => {
    await post('/v1/sandboxes', { name: 'still' })
    await post('/v1/sandboxes/still/stop')
    for (const [verb, body] of [
      ['resume', {}],
      ['pause', {}],
      ['commands', { command: 'true' }],
    ] as const) {
      expect(await post(`/v1/sandboxes/still/${verb}`, body)).toMatchObject({
        status: 409,
        body: { code: 'sandbox_not_running', message: "Sandbox 'still' is stopped." },
      })
    }
  })

  it('is listed by namespace and name, in pages, and by state', async () => {
    const { body } = await get('/v1/sandboxes?limit=2')
    expect(body.data.map(({ namespace, name }: { namespace: string; name: string }) => `${namespace}/${name}`)).toEqual(
      ['default/first', 'default/still'],
    )
    const next = await get(`/v1/sandboxes?limit=2&cursor=${body.next_cursor}`)
    expect(next.body.data.map(({ namespace }: { namespace: string }) => namespace)).toEqual(['other'])
    expect((await get('/v1/sandboxes?state=stopped')).body.data).toHaveLength(1)
    expect((await get('/v1/sandboxes?state=odd')).status).toBe(400)
    expect((await get('/v1/sandboxes?namespace=other')).body.data).toHaveLength(1)
  })

  it('has its lifetime extended from now', async () => {
    const before = Date.now()
    const { body } = await post('/v1/sandboxes/first/extend', { lifetime: 3600, idle_timeout: 60 })
    expect(body).toMatchObject({ lifetime: 3600, idle_timeout: 60 })
    expect(Date.parse(body.expires_at)).toBeGreaterThanOrEqual(before + 3_600_000)
    expect((await post('/v1/sandboxes/first/extend', { lifetime: 0, idle_timeout: 0 })).body).toMatchObject({
      ...{ lifetime: null, idle_timeout: null, expires_at: null },
    })
  })

  it('reports its figures while it runs', async () => {
    const { body } = await get('/v1/sandboxes/first/metrics')
    expect(body).toMatchObject({ name: 'first', state: 'running', figures: { memory_limit_bytes: 512 * MiB } })
    const all = await get('/v1/metrics/sandboxes?namespace=default')
    expect(
      all.body.data.map(({ name, figures }: { name: string; figures: unknown }) => [name, figures !== null]),
    ).toEqual([
      ['first', true],
      ['still', false],
    ])
  })
})

describe('a command in a sandbox', () => {
  it('returns its exit code and both streams in order', async () => {
    const command = { command: 'sh', args: ['-c', 'echo out; echo err >&2; cat; exit 3'], stdin: 'in' }
    const { status, body } = await post('/v1/sandboxes/first/commands', command)
    expect(status).toBe(200)
    expect(body).toMatchObject({ exit_code: 3, success: false, ending: { kind: 'exited', code: 3 }, stderr: 'err\n' })
    expect(body.stdout).toBe('out\nin')
  })

  it('passes arguments exactly', async () => {
    const args = ['%s|', 'a b', '$HOME', '*', '"quoted"', '']
    const { body } = await post('/v1/sandboxes/first/commands', { command: 'printf', args })
    expect(body.stdout).toBe('a b|$HOME|*|"quoted"||')
  })

  it.each(['ls | wc', 'echo hi', 'a && b', 'x > y', 'echo `id`'])(
    'is advised to use a shell for %j',
    async (command) => {
      const { status, body } = await post('/v1/sandboxes/first/commands', { command })
      expect([status, body.code]).toEqual([400, 'command_is_shell'])
      expect(body.hint).toContain('bash')
    },
  )

  it('says that a program does not exist', async () => {
    const { body } = await post('/v1/sandboxes/first/commands', { command: 'no-such-program' })
    expect(body).toMatchObject({ exit_code: 127, success: false, ending: { kind: 'not_started' } })
  })

  it('is killed at its timeout', async () => {
    const { body } = await post('/v1/sandboxes/first/commands', { command: 'sleep', args: ['30'], timeout: 0.05 })
    expect(body).toMatchObject({ exit_code: 124, ending: { kind: 'timed_out', limit_ms: 50 } })
    const long = await post('/v1/sandboxes/first/commands', { command: 'true', timeout: 1e6 })
    expect(long.body.code).toBe('timeout_too_long')
  })

  it('keeps the beginning and the end of long output', async () => {
    const { body } = await post('/v1/sandboxes/first/commands', { command: 'seq', args: ['1', '100000'] })
    expect(body.omitted_bytes).toBeGreaterThan(0)
    expect(body.stdout.startsWith('1\n2\n')).toBe(true)
    expect(body.stdout.endsWith('99999\n100000\n')).toBe(true)
    expect(body.stdout.length).toBeLessThan(200 * 1024)
  })

  it('is in the audit log with its program, not with its arguments', async () => {
    const lines = await front.store.audit.newest({ orgId: org, action: 'sandbox.command' }, Number.MAX_SAFE_INTEGER, 1)
    expect(JSON.parse(lines.rows[0]!.details)).toMatchObject({ name: 'first', program: 'seq', arguments: 2 })
  })
})

describe('a background process of a sandbox', () => {
  const at = '/v1/sandboxes/first/processes'

  it('is polled by a cursor, written to, and ends', async () => {
    const started = await post(at, { command: 'cat', stdin: true })
    expect(started).toMatchObject({ status: 201, body: { argv: ['cat'], ending: null } })
    const own = `${at}/${started.body.process}`
    expect((await post(`${own}/stdin`, { data: 'one\n' })).status).toBe(204)
    const first = await get(`${own}/output?wait=10`)
    expect(first.body).toMatchObject({ stdout: 'one\n', ending: null })
    expect(
      (await post(`${own}/stdin`, { data_base64: Buffer.from('two').toString('base64'), close: true })).status,
    ).toBe(204)
    expect((await get(`${own}?wait=10`)).body.ending).toEqual({ kind: 'exited', code: 0 })
    const rest = await get(`${own}/output?after=${first.body.cursor}`)
    expect(rest.body).toMatchObject({ stdout: 'two', ending: { kind: 'exited', code: 0 } })
    expect((await call('DELETE', own)).status).toBe(204)
    expect((await get(own)).body.code).toBe('process_unknown')
  })

  it('is followed line by line to its end', async () => {
    const { body } = await post(at, { command: 'sh', args: ['-c', 'echo 1; echo 2 >&2; exit 4'] })
    const response = await fetch(`${front.url}${at}/${body.process}/output`, {
      headers: { 'x-api-key': key, accept: 'application/x-ndjson' },
    })
    const lines = (await response.text())
      .trim()
      .split('\n')
      .map((text) => JSON.parse(text))
    expect(lines).toContainEqual(expect.objectContaining({ type: 'stdout', data: '1\n' }))
    expect(lines).toContainEqual(expect.objectContaining({ type: 'stderr', data: '2\n' }))
    expect(lines.at(-1)).toMatchObject({ type: 'ended', ending: { kind: 'exited', code: 4 } })
  })

  it('reports its ending to polls and followers with any cursor', async () => {
    const { body } = await post(at, { command: 'echo', args: ['done'] })
    const own = `${at}/${body.process}`
    const { cursor } = (await get(`${own}/output?wait=10`)).body
    await get(`${own}?wait=10`)
    for (const after of [cursor, cursor + 1, 999_999_999_999_999]) {
      const ending = { kind: 'exited', code: 0 }
      expect((await get(`${own}/output?wait=50&after=${after}`)).body).toMatchObject({ stdout: '', ending })
      const headers = { 'x-api-key': key, accept: 'application/x-ndjson' }
      const followed = await (await fetch(`${front.url}${own}/output?after=${after}`, { headers })).text()
      expect(JSON.parse(followed)).toMatchObject({ type: 'ended', ending })
    }
  })

  it('receives signals by name and number', async () => {
    for (const [signal, name] of [
      ['TERM', 'TERM'],
      ['sigint', 'INT'],
      [9, 'KILL'],
    ] as const) {
      const { body } = await post(at, { command: 'sleep', args: ['30'] })
      expect((await post(`${at}/${body.process}/signal`, { signal })).status).toBe(204)
      expect((await get(`${at}/${body.process}?wait=10`)).body.ending).toEqual({ kind: 'signaled', signal: name })
    }
    const { body } = await post(at, { command: 'sleep', args: ['30'] })
    expect((await post(`${at}/${body.process}/signal`, { signal: 'NOPE' })).status).toBe(400)
    expect((await call('DELETE', `${at}/${body.process}`)).status).toBe(204)
  })

  it('is unknown by another number, or by no number', async () => {
    for (const process of ['999999', 'x', '-1', '1e3']) {
      expect([process, (await get(`${at}/${process}/output`)).body.code]).toEqual([process, 'process_unknown'])
      expect((await post(`${at}/${process}/signal`, { signal: 'TERM' })).body.code).toBe('process_unknown')
    }
  })
})

describe('the files of a sandbox', () => {
  const at = '/v1/sandboxes/first/files'
  const put = async (query: string, body: RequestInit['body']) => {
    const init = { method: 'PUT', headers: { 'x-api-key': key }, body, duplex: 'half' } as RequestInit
    const response = await fetch(`${front.url}${at}/content?${query}`, init)
    return { status: response.status, body: (await response.json()) as ReturnType<typeof JSON.parse> }
  }
  const read = (query: string, headers = {}) =>
    fetch(`${front.url}${at}/content?${query}`, { headers: { 'x-api-key': key, ...headers } })

  it('are written, appended to, read in ranges, listed in pages, moved, copied and deleted', async () => {
    expect(await put('path=f/a.txt&parents=true', 'one')).toMatchObject({ status: 200, body: { size_bytes: 3 } })
    expect((await put('path=f/a.txt&append=true', 'two')).status).toBe(200)
    const whole = await read('path=f/a.txt')
    expect(whole.headers.get('content-disposition')).toBe('attachment; filename="a.txt"')
    expect(await whole.text()).toBe('onetwo')
    const part = await read('path=f/a.txt', { range: 'bytes=2-3' })
    expect([part.status, part.headers.get('content-range'), await part.text()]).toEqual([206, 'bytes 2-3/6', 'et'])
    expect((await read('path=f/a.txt', { range: 'bytes=9-' })).status).toBe(416)
    expect((await get(`${at}/stat?path=f/a.txt`)).body).toMatchObject({ kind: 'file', size_bytes: 6, mode: '0644' })
    expect((await post(`${at}/copy`, { from: 'f/a.txt', to: 'f/b.txt' })).status).toBe(204)
    expect(await post(`${at}/move`, { from: 'f/a.txt', to: 'f/b.txt' })).toMatchObject({
      status: 409,
      body: { code: 'path_exists' },
    })
    expect((await post(`${at}/move`, { from: 'f/a.txt', to: 'f/b.txt', replace: true })).status).toBe(204)
    expect((await post(`${at}/directories`, { path: 'f/c', mode: '750' })).status).toBe(204)
    const first = (await get(`${at}?path=f&limit=1`)).body
    const next = (await get(`${at}?path=f&limit=1&cursor=${first.next_cursor}`)).body
    expect([first.data[0].name, next.data[0].name, next.next_cursor]).toEqual(['b.txt', 'c', null])
    expect((await call('DELETE', `${at}?path=f&recursive=true`)).status).toBe(204)
    expect((await get(`${at}?path=f`)).body.code).toBe('path_not_found')
  })

  it.each([
    ['GET', '?limit=0', 'limit'],
    ['GET', '?limit=1001', 'limit'],
    ['GET', '?limit=x', 'limit'],
    ['GET', '/watch?recursive=maybe', 'recursive'],
    ['DELETE', '?path=x&recursive=1', 'recursive'],
  ])('are not reached with %s %s', async (method, query, field) => {
    const { status, body } = await call(method, at + query)
    expect([status, body.code]).toEqual([400, 'invalid_argument'])
    expect(body.message).toContain(field)
  })

  it('are not written with a wrong mode, or half', async () => {
    expect((await put('path=m&mode=rwx', 'x')).body.message).toContain('octal')
    expect((await put('path=m&mode=77777', 'x')).body.message).toContain('mode')
    await put('path=kept', 'kept')
    const broken = new ReadableStream({
      start: (stream) => stream.enqueue(new TextEncoder().encode('half')),
      pull: (stream) => stream.error(new Error('the client fails')),
    })
    await expect(put('path=kept', broken)).rejects.toThrow()
    expect(await (await read('path=kept')).text()).toBe('kept')
  })

  it('are watched', async () => {
    const response = await fetch(`${front.url}${at}/watch?path=.`, { headers: { 'x-api-key': key } })
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
    let text = ''
    while (text.split('\n').length < 3) text += (await reader.read()).value ?? ''
    await reader.cancel()
    expect(
      text
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toEqual([{ type: 'watching' }, { type: 'created', path: 'new' }])
  })

  it('are never reached by other organizations and namespaces', async () => {
    const foreign = await newKey((await createOrg(front.core.adminContext, operator, 'files-foreign')).id)
    for (const secret of [foreign, await newKey(org, ['blue'])]) {
      expect([403, 404]).toContain((await get(`${at}?path=.`, secret)).status)
      const own = { method: 'PUT', headers: { 'x-api-key': secret }, body: 'x' }
      expect([403, 404]).toContain((await fetch(`${front.url}${at}/content?path=stolen`, own)).status)
    }
    expect((await get(`${at}/stat?path=stolen`)).body.code).toBe('path_not_found')
  })

  it('are not reached while it is paused, and remain when it is stopped, but are not watched', async () => {
    await post('/v1/sandboxes/first/pause')
    expect((await get(at)).body.code).toBe('sandbox_not_running')
    await post('/v1/sandboxes/first/stop')
    expect(await (await read('path=kept')).text()).toBe('kept')
    expect((await get(`${at}/watch`)).body.code).toBe('sandbox_not_running')
    await post('/v1/sandboxes/first/start')
  })
})

describe('keys of other organizations and namespaces', () => {
  it('never see a sandbox by its name or ID', async () => {
    const { body: own } = await get('/v1/sandboxes/first')
    const foreign = await newKey((await createOrg(front.core.adminContext, operator, 'foreign')).id)
    const scoped = await newKey(org, ['blue', 'green'])
    for (const secret of [foreign, scoped]) {
      expect((await get('/v1/sandboxes', secret)).body.data).toEqual([])
      expect((await get('/v1/metrics/sandboxes', secret)).body.data).toEqual([])
      for (const name of ['first', own.id]) {
        const { status } = await get(`/v1/sandboxes/${name}`, secret)
        expect([403, 404]).toContain(status)
        expect([403, 404]).toContain((await post(`/v1/sandboxes/${name}/stop`, {}, secret)).status)
        expect([403, 404]).toContain((await post(`/v1/sandboxes/${name}/commands`, { command: 'id' }, secret)).status)
      }
    }
    const denied = await get('/v1/sandboxes/first?namespace=default', scoped)
    expect(denied).toMatchObject({ status: 403, body: { code: 'namespace_denied' } })
    expect((await get('/v1/sandboxes/first')).body.state).toBe('running')
  })

  it('use their only namespace if none is named', async () => {
    const blue = await newKey(org, ['blue'])
    expect((await post('/v1/sandboxes', { name: 'mine' }, blue)).body.namespace).toBe('blue')
    expect((await get('/v1/sandboxes', blue)).body.data).toHaveLength(1)
    expect((await get('/v1/sandboxes/mine')).status).toBe(404)
    expect((await get('/v1/sandboxes/mine?namespace=blue')).status).toBe(200)
  })
})

describe('the limits of sandboxes', () => {
  it('are named by the refusal, and hold for concurrent calls', async () => {
    const { core } = front
    const { id } = await createOrg(core.adminContext, operator, 'limited')
    const secret = await newKey(id)
    const set = (amounts: object) => setLimits(core.adminContext, operator, { orgId: id }, amounts)
    await set({ sandboxes: 2 })
    const many = await Promise.all([1, 2, 3, 4, 5].map((n) => post('/v1/sandboxes', { name: `s${n}` }, secret)))
    expect(many.map(({ status }) => status).sort()).toEqual([201, 201, 429, 429, 429])
    expect(many.find(({ status }) => status === 429)?.body.message).toContain('sandboxes (2)')
    const [running] = (await get('/v1/sandboxes', secret)).body.data
    await post(`/v1/sandboxes/${running.name}/stop`, {}, secret)
    expect((await post('/v1/sandboxes', { name: 'next' }, secret)).status).toBe(201)
    expect((await post(`/v1/sandboxes/${running.name}/start`, {}, secret)).status).toBe(429)
    await set({ sandbox_memory_bytes: 1024 * MiB })
    expect((await post(`/v1/sandboxes/${running.name}/start`, {}, secret)).body.message).toContain(
      'sandbox_memory_bytes',
    )
    await set({ sandbox_disk_bytes: 3 * 64 * MiB })
    expect((await post('/v1/sandboxes', {}, secret)).body.message).toContain('sandbox_disk_bytes')
    await set({ storage_bytes: 3 * 64 * MiB })
    expect((await post('/v1/sandboxes', {}, secret)).body.message).toContain('storage_bytes')
  })
})

describe('glovebox sandbox', () => {
  const glovebox = async (...words: string[]) => {
    const env = { GLOVEBOX_URL: front.url, GLOVEBOX_KEY: key }
    const { code, stdout } = await withCommandIo((io) => runProgram(['sandbox', ...words], io), { env })
    return { code, printed: stdout.toString() }
  }

  it('prints the result of a command, output and deletion as JSON on request', async () => {
    await post('/v1/sandboxes', { name: 'shown' })
    const ran = await glovebox('exec', '--json', 'shown', '--', 'bash', '-c', 'echo out; echo err >&2; exit 3')
    const result = { exit_code: 3, success: false, stdout: 'out\n', stderr: 'err\n', omitted_bytes: 0 }
    expect([ran.code, JSON.parse(ran.printed)]).toEqual([3, { ...result, ending: { kind: 'exited', code: 3 } }])
    const started = await post('/v1/sandboxes/shown/processes', { command: 'bash', args: ['-c', 'echo a; exit 4'] })
    const process = `${started.body.process}`
    const followed = await glovebox('logs', 'shown', process, '--follow', '--json')
    const lines = followed.printed
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(followed.code).toBe(4)
    expect(lines).toMatchObject([
      { type: 'stdout', data: 'a\n' },
      { type: 'ended', ending: { code: 4 } },
    ])
    expect(JSON.parse((await glovebox('logs', 'shown', process, '--json')).printed)).toMatchObject({
      ...{ stdout: 'a\n', stderr: '', ending: { kind: 'exited', code: 4 } },
    })
    expect(JSON.parse((await glovebox('logs', 'shown', '--json')).printed)).toMatchObject([
      { process: Number(process) },
    ])
    expect(JSON.parse((await glovebox('rm', 'shown', '--json')).printed)).toEqual({ deleted: ['shown'] })
  })

  it('copies files and directories in both directions, with their modes', async () => {
    const local = mkdtempSync(join(tmpdir(), 'glovebox-cp-'))
    onTestFinished(() => rmSync(local, { recursive: true }))
    await post('/v1/sandboxes', { name: 'copied' })
    mkdirSync(join(local, 'tree/below'), { recursive: true })
    writeFileSync(join(local, 'tree/below/run.sh'), 'echo hi', { mode: 0o755 })
    writeFileSync(join(local, 'tree/empty'), '')
    expect((await glovebox('cp', join(local, 'tree'), 'copied:new')).code).toBe(0)
    expect((await glovebox('cp', join(local, 'tree'), 'copied:new')).code).toBe(0)
    expect((await glovebox('ls', 'copied:new')).printed).toBe('below/\nempty\ntree/\n')
    expect((await glovebox('cp', 'copied:new/tree/below/run.sh', '-')).printed).toBe('echo hi')
    expect((await glovebox('cp', 'copied:new', join(local, 'back'))).code).toBe(0)
    expect(readdirSync(join(local, 'back')).sort()).toEqual(['below', 'empty', 'tree'])
    expect(statSync(join(local, 'back/tree/below/run.sh')).mode & 0o777).toBe(0o755)
    expect((await glovebox('cp', 'copied:new/empty', local)).code).toBe(0)
    expect(readFileSync(join(local, 'empty'), 'utf8')).toBe('')
    const wrong = [
      ['copied:a', 'copied:b'],
      [join(local, 'empty'), local],
      ['copied:none', local],
      ['unknown:a', local],
    ]
    for (const [from = '', to = ''] of wrong) expect((await glovebox('cp', from, to)).code).not.toBe(0)
    const [long] = JSON.parse((await glovebox('ls', '--json', 'copied:new/below')).printed)
    expect(long).toMatchObject({ name: 'run.sh', mode: '0755', size_bytes: 7 })
  })
})

describe('a revoked key', () => {
  it('has its sandboxes stopped with their disk', async () => {
    const created = await createKey(front.core.adminContext, operator, org, {}, toolNames)
    await post('/v1/sandboxes', { name: 'orphan' }, created.secret)
    await revokeKey(front.core.adminContext, operator, org, created.id)
    await expect
      .poll(async () => (await get('/v1/sandboxes/orphan')).body, { timeout: 5_000 })
      .toMatchObject({ state: 'stopped', reason: 'key_revoked' })
  })
})
