import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createToken } from '../../src/core/admin/tokens.ts'
import { Volumes, volumeRef } from '../../src/core/storage/volumes.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'

const mib = 1024 * 1024
let front: Front
let token = ''
beforeAll(async () => {
  const volumes = [
    { slug: 'data', mode: 'rw' },
    { slug: 'models', mode: 'ro' },
  ] as const
  front = await openFront({ ...threadsProfile, volumes }, { dev: false, trustedProxies: ['127.0.0.1'] })
  token = (await createToken(front.core.adminContext, operator, { name: 'o', role: 'owner', org_id: null })).secret
})
afterAll(() => front.close())

interface Body {
  id: string
  secret: string
  message: string
  data: { slug: string; mode: string }[]
}

let addresses = 0
async function call(method: string, path: string, body?: unknown, secret = token) {
  addresses += 1
  const response = await fetch(`${front.url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${secret}`,
      'x-forwarded-for': `198.51.${addresses >> 8}.${addresses & 255}`,
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  return { status: response.status, body: (text === '' ? {} : JSON.parse(text)) as Body }
}

let names = 0
async function newOrg() {
  const org = (await call('POST', '/admin/v1/orgs', { name: `org ${++names}` })).body.id
  const volumes = `/admin/v1/orgs/${org}/volumes`
  const key = async (profile = 'default') => (await call('POST', `/admin/v1/orgs/${org}/keys`, { profile })).body
  return { org, volumes, key }
}

const run = (secret: string) => call('POST', '/v1/sandbox/execute', { code: 'true', language: 'bash' }, secret)

describe('volumes', () => {
  it('are created, listed, read, renamed, grown and deleted by an administrator', async () => {
    const { volumes } = await newOrg()
    const made = await call('POST', volumes, { slug: 'one', name: 'Numbers', quota_bytes: 16 * mib })
    expect(made).toMatchObject({ status: 201, body: { slug: 'one', quota_bytes: 16 * mib, removing_at: null } })
    expect((await call('POST', volumes, { slug: 'one' })).status).toBe(409)
    await call('POST', volumes, { slug: 'two' })
    expect((await call('GET', `${volumes}?limit=1`)).body).toMatchObject({
      data: [{ slug: 'one' }],
      next_cursor: expect.any(String),
    })
    expect((await call('PATCH', `${volumes}/one`, { slug: 'two' })).status).toBe(409)
    expect((await call('PATCH', `${volumes}/one`, { slug: 'uno' })).status).toBe(200)
    expect((await call('PATCH', `${volumes}/uno`, { quota_bytes: 32 * mib })).body).toMatchObject({
      id: made.body.id,
      quota_bytes: 32 * mib,
    })
    expect((await call('GET', `${volumes}/uno`)).body).toMatchObject({ used_bytes: expect.any(Number) })
    expect((await call('DELETE', `${volumes}/uno`)).status).toBe(204)
    expect((await call('GET', `${volumes}/uno`)).status).toBe(404)
    expect((await call('GET', volumes)).body.data.map(({ slug }) => slug)).toEqual(['two'])
  })

  it('are rejected with a reason when their definition is invalid', async () => {
    const { volumes } = await newOrg()
    for (const body of [
      {},
      { slug: '' },
      { slug: '../x' },
      { slug: 'A' },
      { slug: 'a'.repeat(65) },
      { slug: 'a', quota_bytes: 1 },
      { slug: 'a', quota_files: 1 },
      { slug: 'a', quota_bytes: 1.5 },
      { slug: 'a', more: 1 },
    ]) {
      expect((await call('POST', volumes, body)).status).toBe(400)
    }
    await call('POST', volumes, { slug: 'a', quota_bytes: 16 * mib })
    expect((await call('PATCH', `${volumes}/a`, { quota_bytes: 8 * mib })).body.message).toMatch(/never shrinks/)
  })

  it('block the runs of a profile while one is missing, and the refusal names it', async () => {
    const { volumes, key } = await newOrg()
    const { secret } = await key()
    await call('POST', volumes, { slug: 'data' })
    expect(await run(secret)).toMatchObject({ status: 409, body: { message: expect.stringContaining('models') } })
    await call('POST', volumes, { slug: 'models' })
    expect((await run(secret)).status).toBe(200)
    const spec = [...front.runner.specs.values()].at(-1)
    expect(spec?.volumes).toMatchObject([
      { slug: 'data', readOnly: false },
      { slug: 'models', readOnly: true },
    ])
  })

  it('are visible to keys whose profile mounts them, and no others', async () => {
    const { volumes, key } = await newOrg()
    for (const slug of ['data', 'other']) await call('POST', volumes, { slug })
    const listed = await call('GET', '/v1/volumes', undefined, (await key()).secret)
    expect(listed.body).toMatchObject({
      data: [{ slug: 'data', mode: 'rw', path: '/volumes/data' }],
      next_cursor: null,
    })
    expect(listed.body.data).toHaveLength(1)
  })

  it('serve files to a key by its profile, and accept writes only where it may write', async () => {
    const { org, volumes, key } = await newOrg()
    for (const slug of ['data', 'models', 'other']) await call('POST', volumes, { slug })
    const caller = await front.core.authenticate((await key()).secret)
    const mounted = new Volumes(front.store, front.runner)
    const data = await mounted.reach(caller, 'data', 'write')
    await front.runner.files.write(data, 'f', [Buffer.from('text')])
    const file = await front.core.files.open(caller, { source: 'volume', id: 'data', path: 'f' })
    expect(file.lengthBytes).toBe(4)
    file.stop()
    expect(await front.core.files.write(caller, { source: 'volume', id: 'data', path: 'g' }, [Buffer.from('x')])).toBe(
      1,
    )
    await expect(
      front.core.files.write(caller, { source: 'volume', id: 'models', path: 'g' }, [Buffer.from('x')]),
    ).rejects.toMatchObject({ code: 'volume_read_only' })
    expect(await mounted.reach(caller, 'models', 'read')).toMatchObject({ area: 'volumes', org })
    await expect(mounted.reach(caller, 'models', 'write')).rejects.toMatchObject({
      code: 'volume_read_only',
    })
    for (const slug of ['other', 'none']) {
      await expect(mounted.reach(caller, slug, 'read')).rejects.toMatchObject({ code: 'volume_unknown' })
    }
  })

  it('can be neither deleted nor renamed while the profile of a live key mounts them', async () => {
    const { org, volumes, key } = await newOrg()
    await call('POST', volumes, { slug: 'data' })
    const { id } = await key()
    expect(await call('DELETE', `${volumes}/data`)).toMatchObject({
      status: 409,
      body: { message: expect.stringContaining('the profile default') },
    })
    expect((await call('PATCH', `${volumes}/data`, { slug: 'x' })).status).toBe(409)
    await call('DELETE', `/admin/v1/orgs/${org}/keys/${id}`)
    expect((await call('DELETE', `${volumes}/data`)).status).toBe(204)
  })

  it('are invisible to the administrators and keys of another organization', async () => {
    const { volumes } = await newOrg()
    const other = await newOrg()
    await call('POST', volumes, { slug: 'data' })
    const stranger = (
      await createToken(front.core.adminContext, operator, { name: 's', role: 'owner', org_id: other.org })
    ).secret
    for (const [method, path] of [
      ['GET', volumes],
      ['GET', `${volumes}/data`],
      ['DELETE', `${volumes}/data`],
    ] as const) {
      expect((await call(method, path, undefined, stranger)).status).toBe(404)
    }
    expect((await call('GET', '/v1/volumes', undefined, (await other.key()).secret)).body.data).toEqual([])
  })

  it('count with threads towards the storage limit of an organization', async () => {
    const { org, volumes, key } = await newOrg()
    for (const slug of ['data', 'models']) await call('POST', volumes, { slug, quota_bytes: 8 * mib })
    const { secret } = await key()
    await call('PUT', `/admin/v1/orgs/${org}/limits`, { storage_bytes: 24 * mib })
    const thread = (id: string) =>
      call('POST', '/v1/sandbox/execute', { code: 'true', language: 'bash', thread_id: id }, secret)
    expect((await thread('first')).status).toBe(200)
    expect(await thread('second')).toMatchObject({
      status: 429,
      body: { message: expect.stringContaining('storage_bytes') },
    })
    expect((await thread('first')).status).toBe(200)
    expect((await call('POST', volumes, { slug: 'more', quota_bytes: 8 * mib })).status).toBe(429)
    expect((await call('PATCH', `${volumes}/data`, { quota_bytes: 16 * mib })).status).toBe(429)
    expect((await call('POST', '/v1/threads/first/fork', { to: 'second' }, secret)).status).toBe(429)
    await call('DELETE', '/v1/threads/first', undefined, secret)
    expect((await thread('second')).status).toBe(200)
  })

  it('are erased shortly after a command deleted them or a crash left them half deleted', async () => {
    const { org, volumes } = await newOrg()
    await call('POST', volumes, { slug: 'data' })
    const row = (await front.store.volumes.get(org, 'data'))!
    await front.runner.storage.create(volumeRef(row), { bytes: 8 * mib, inodes: 100 })
    await front.store.volumes.setRemoving(row.id, '2026-01-01T00:00:00.000Z')
    await expect.poll(() => front.store.volumes.get(org, 'data'), { timeout: 20_000 }).toBeUndefined()
    expect(await front.runner.storage.sizes('volumes', org, [row.id])).toEqual([null])
  })
})
