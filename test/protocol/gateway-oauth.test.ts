import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import {
  completeUpstreamLogin,
  listUpstreamCredentials,
  loginToUpstream,
  removeUpstreamCredential,
} from '../../src/core/admin/upstream-logins.ts'
import { createUpstream, refreshUpstream, type UpstreamSettings } from '../../src/core/admin/upstreams.ts'
import type { OAuthGrant } from '../../src/core/upstreams/stored-credentials.ts'
import {
  type AuthorizationServer,
  oidcProvider,
  openAuthorizationServer,
  openProtectedUpstream,
  type ProtectedUpstream,
} from '../support/authorization-server.ts'
import { type Front, openFront } from '../support/front.ts'
import { installWithinMs, isAvailable } from '../support/installed-packages.ts'
import { openStatelessUpstream } from '../support/upstreams.ts'

const redirectUri = 'http://127.0.0.1:9/callback'
const publicUrl = 'https://glovebox.example.com'

describe.skipIf(!(await isAvailable(oidcProvider)))('an upstream that requires a login', { timeout: 60_000 }, () => {
  let front: Front
  let org: string
  let key: { id: string; secret: string }
  let server: AuthorizationServer
  let upstream: ProtectedUpstream

  beforeAll(async () => {
    front = await openFront(undefined, { dev: false, publicUrl })
    org = (await createOrg(front.core.adminContext, operator, 'logins')).id
    key = await newKey()
    server = await openAuthorizationServer(async () => fetch(`${front.url}/oauth/client.json`))
    upstream = await openProtectedUpstream(() => server)
  }, installWithinMs)
  afterAll(async () => {
    await front?.close()
    server?.close()
    upstream?.close()
  })

  const newKey = async () => createKey(front.core.adminContext, operator, org, {}, [])

  let names = 0
  async function register(settings: UpstreamSettings = { oauth: {} }) {
    const name = `login/n${++names}`
    const { id } = await createUpstream(
      front.core.adminContext,
      operator,
      { orgId: org, name },
      { url: upstream.url, ...settings },
    )
    return { id, name, ref: { orgId: org, name } }
  }
  type Registered = Awaited<ReturnType<typeof register>>

  const begin = async ({ ref }: Registered) =>
    (await loginToUpstream(front.core.adminContext, operator, ref, { kind: 'browser', redirectUri })).url
  const complete = ({ ref }: Registered, redirectedTo?: string) =>
    completeUpstreamLogin(front.core.adminContext, operator, ref, redirectedTo)
  const loggedIn = async (settings?: UpstreamSettings) => {
    const registered = await register(settings)
    await complete(registered, await server.browse(await begin(registered)))
    return registered
  }
  const grantOf = async ({ id }: Registered) =>
    (await front.core.upstreamCredentials.get({ upstreamId: id, keyId: '' })) as OAuthGrant

  const echo = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'echo', arguments: { text: 'hi' } } }
  const call = ({ name }: Registered, secret = key.secret) =>
    front.post(`/${name}/sse`, echo, { authorization: `Bearer ${secret}` })
  const refusal = async (response: Response) =>
    (await response.json()) as { error: string; message: string; hint: string }

  it('is called with the tokens of a login, for its address only, and as a registered client', async () => {
    const registered = await register()
    const url = new URL(await begin(registered))
    expect(url.searchParams.get('code_challenge_method')).toBe('S256')
    expect(url.searchParams.get('resource')).toBe(upstream.url)
    expect(server.requests.at(-1)).toMatchObject({ path: '/reg', body: expect.stringContaining(redirectUri) })
    const redirectedTo = await server.browse(url.href)
    expect(new URL(redirectedTo).searchParams.get('iss')).toBe(server.issuer)
    expect(await complete(registered, redirectedTo)).toBe(true)
    expect(await (await call(registered)).text()).toContain('"text":"hi"')
    const view = await refreshUpstream(front.core.adminContext, operator, registered.ref)
    expect(view).toMatchObject({ tools: 2, oauth: { client_id: null } })
    const [login] = await listUpstreamCredentials(front.core.adminContext, operator, registered.ref)
    expect(login).toMatchObject({ key_id: null, issuer: server.issuer, renews: true, problem: null })
  })

  it('keeps its tokens encrypted, and shows them neither in logs nor in errors', async () => {
    const registered = await loggedIn()
    const { accessToken, refreshToken } = await grantOf(registered)
    const row = await front.store.upstreamCredentials.get(registered.id, '')
    expect(JSON.stringify(row)).not.toContain(accessToken)
    await (await server.provider.AccessToken.find(accessToken))?.destroy()
    await (await server.provider.RefreshToken.find(refreshToken!))?.destroy()
    const text = JSON.stringify(await refusal(await call(registered)))
    for (const secret of [accessToken, refreshToken!]) expect(text + front.lines.join('')).not.toContain(secret)
  })

  it('is called as the client that a public document describes, where the authorization server reads one', async () => {
    const reading = await openAuthorizationServer(async () => fetch(`${front.url}/oauth/client.json`), {
      clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
    })
    const before = server
    server = reading
    try {
      const registered = await register()
      const url = await begin(registered)
      expect(new URL(url).searchParams.get('client_id')).toBe(`${publicUrl}/oauth/client.json`)
      expect(reading.requests.filter(({ path }) => path === '/reg')).toEqual([])
      await complete(registered, await reading.browse(url))
      expect((await call(registered)).status).toBe(200)
    } finally {
      server = before
      reading.close()
    }
  })

  it('renews its token before it expires', async () => {
    const registered = await loggedIn()
    const old = await grantOf(registered)
    await front.core.upstreamCredentials.put({ upstreamId: registered.id, keyId: '' }, { ...old, renewAtMs: 0 })
    upstream.rejected.length = 0
    expect((await call(registered)).status).toBe(200)
    expect(upstream.rejected).toEqual([])
    expect((await grantOf(registered)).accessToken).not.toBe(old.accessToken)
  })

  it('renews a rejected token once, however many calls it rejects', async () => {
    const registered = await loggedIn()
    const { accessToken } = await grantOf(registered)
    await (await server.provider.AccessToken.find(accessToken))?.destroy()
    server.requests.length = 0
    const answers = await Promise.all(Array.from({ length: 5 }, () => call(registered)))
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200])
    const renewals = server.requests.filter(({ body }) => body.includes('grant_type=refresh_token'))
    expect(renewals).toHaveLength(1)
    expect(new URLSearchParams(renewals[0]!.body).get('resource')).toBe(upstream.url)
  })

  it('answers with how to log in again once its login has ended, and works after that', async () => {
    const registered = await loggedIn()
    const { accessToken, refreshToken } = await grantOf(registered)
    await (await server.provider.AccessToken.find(accessToken))?.destroy()
    await (await server.provider.RefreshToken.find(refreshToken!))?.destroy()
    for (let index = 0; index < 2; index++) {
      const response = await call(registered)
      const { error, message } = await refusal(response)
      expect([response.status, error]).toEqual([502, 'configuration_error'])
      expect(message).toMatch('invalid_grant')
      expect(message).toContain(`glovebox upstreams login ${registered.name}`)
    }
    const [login] = await listUpstreamCredentials(front.core.adminContext, operator, registered.ref)
    expect(login).toMatchObject({ renews: false, problem: expect.stringContaining('invalid_grant') })
    await complete(registered, await server.browse(await begin(registered)))
    expect((await call(registered)).status).toBe(200)
  })

  it('is refused before the first login, and after the login was removed', async () => {
    const registered = await register()
    expect((await refusal(await call(registered))).message).toMatch('no login has been completed yet')
    await complete(registered, await server.browse(await begin(registered)))
    await removeUpstreamCredential(front.core.adminContext, operator, registered.ref, null)
    await expect.poll(async () => (await call(registered)).status).toBe(502)
  })

  it('accepts the redirect of its own login only, once', async () => {
    const registered = await register()
    const redirected = new URL(await server.browse(await begin(registered)))
    const changed = (change: (url: URL) => unknown) => {
      const url = new URL(redirected)
      change(url)
      return complete(registered, url.href)
    }
    const again = async () => {
      redirected.href = await server.browse(await begin(registered))
    }
    await expect(changed(({ searchParams }) => searchParams.set('state', 'other'))).rejects.toThrow('another login')
    await again()
    await expect(changed(({ searchParams }) => searchParams.set('iss', 'https://evil.example'))).rejects.toThrow(/iss/i)
    await again()
    await expect(changed(({ searchParams }) => searchParams.delete('iss'))).rejects.toThrow(/iss/i)
    await again()
    await expect(complete(registered, redirected.href.replace('127.0.0.1:9', '127.0.0.1:8'))).rejects.toThrow(
      'must be the address',
    )
    await again()
    await complete(registered, redirected.href)
    await expect(complete(registered, redirected.href)).rejects.toThrow('no login has begun')
    await again()
    const denied = changed(({ searchParams }) => {
      searchParams.delete('code')
      searchParams.set('error', 'access_denied')
    })
    await expect(denied).rejects.toThrow('access_denied')
    const elsewhere = { kind: 'browser', redirectUri: 'https://evil.example/callback' } as const
    await expect(loginToUpstream(front.core.adminContext, operator, registered.ref, elsewhere)).rejects.toThrow(
      'redirect_uri',
    )
  })

  it('gets no token for an address that is not its own', async () => {
    const registered = await register()
    upstream.resource = 'https://bank.example.com/mcp'
    try {
      await expect(begin(registered)).rejects.toThrow('another address')
    } finally {
      upstream.resource = upstream.url
    }
  })

  it('can be logged in to from another device', async () => {
    const registered = await register()
    const login = await loginToUpstream(front.core.adminContext, operator, registered.ref, { kind: 'device' })
    expect(await complete(registered)).toBe(false)
    await server.browse(login.url)
    expect(await complete(registered)).toBe(true)
    expect((await call(registered)).status).toBe(200)
  })

  it('is called with the login of the key, where each key has its own', async () => {
    const registered = await register({ oauth: {}, credential_mode: 'per_key' })
    const other = await newKey()
    const message = (await refusal(await call(registered))).message
    expect(message).toContain(`POST /v1/mcp/${registered.name}/login`)
    const post = async (path: string, body: object) => {
      const response = await front.post(`/v1/mcp/${registered.name}${path}`, body, { 'x-api-key': key.secret })
      return (await response.json()) as { url: string; complete: boolean }
    }
    const { url } = await post('/login', { redirect_uri: redirectUri })
    expect(await post('/login/complete', { redirected_to: await server.browse(url) })).toEqual({ complete: true })
    expect((await call(registered)).status).toBe(200)
    expect((await call(registered, other.secret)).status).toBe(502)
    const [login] = await listUpstreamCredentials(front.core.adminContext, operator, registered.ref)
    expect(login).toMatchObject({ key_id: key.id, kind: 'oauth' })
  })
})

describe('an upstream whose keys have their own credential', () => {
  it('is called with that of the key, and with that of the organization only where this is allowed', async () => {
    const front = await openFront(undefined, { dev: false })
    const upstream = await openStatelessUpstream()
    try {
      const org = (await createOrg(front.core.adminContext, operator, 'own')).id
      const { secret } = await createKey(front.core.adminContext, operator, org, {}, [])
      const credential = { in: 'header', name: 'X-Token', prefix: 'T ', values: ['shared-token'] } as const
      const modes = ['per_key', 'per_key_or_shared', 'shared'] as const
      for (const mode of modes) {
        const settings = { url: upstream.url, credential, credential_mode: mode }
        await createUpstream(front.core.adminContext, operator, { orgId: org, name: `own/${mode}` }, settings)
      }
      const headers = { 'x-api-key': secret, 'content-type': 'application/json' }
      const tokenAt = async (mode: string) => {
        upstream.received.length = 0
        await front.post(`/own/${mode}/sse`, { jsonrpc: '2.0', id: 1, method: 'ping' }, headers)
        return upstream.received.at(-1)?.headers['x-token']
      }
      expect([await tokenAt('per_key'), await tokenAt('per_key_or_shared')]).toEqual([undefined, 'T shared-token'])
      const put = async (mode: string) => {
        const init = { method: 'PUT', headers, body: JSON.stringify({ values: ['own-token'] }) }
        return (await fetch(`${front.url}/v1/mcp/own/${mode}/credential`, init)).status
      }
      expect([await put('per_key'), await put('per_key_or_shared'), await put('shared')]).toEqual([204, 204, 400])
      expect(await tokenAt('per_key')).toBe('T own-token')
      expect(await tokenAt('per_key_or_shared')).toBe('T own-token')
      expect(await tokenAt('shared')).toBe('T shared-token')
      await fetch(`${front.url}/v1/mcp/own/per_key/credential`, { method: 'DELETE', headers: { 'x-api-key': secret } })
      expect(await tokenAt('per_key')).toBeUndefined()
    } finally {
      await front.close()
      upstream.close()
    }
  })
})
