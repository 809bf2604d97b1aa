import { createConfig, lintFromString } from '@redocly/openapi-core'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createToken } from '../../src/core/admin/tokens.ts'
import { isRaw, type Operation } from '../../src/http/operation.ts'
import { operations } from '../../src/http/operations.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'

const byName = new Map(operations.map((operation) => [`${operation.method} ${operation.path}`, operation]))

let front: Front
beforeAll(async () => {
  front = await openFront(threadsProfile, { dev: false, trustedProxies: ['127.0.0.1'] })
})
afterAll(() => front.close())

describe('the OpenAPI document', () => {
  it('passes a public linter without a warning', async () => {
    const response = await fetch(`${front.url}/openapi.json`)
    expect(response.status).toBe(200)
    const config = await createConfig({ extends: ['recommended-strict'] })
    const problems = await lintFromString({ source: await response.text(), config, absoluteRef: 'openapi.json' })
    expect(problems.map(({ ruleId, message, location }) => [ruleId, message, location[0]?.pointer])).toEqual([])
    const etag = response.headers.get('etag') ?? ''
    expect((await fetch(`${front.url}/openapi.json`, { headers: { 'if-none-match': etag } })).status).toBe(304)
  })

  it('describes exactly the paths that are served', () => {
    const served = servedPaths(front.app.printRoutes({ commonPrefix: false })).map(toTemplate)
    const described = operations.map(({ path }) => path)
    expect([...new Set(served)].sort()).toEqual([...new Set(described)].sort())
  })

  it('describes every method: other methods are answered with the allowed ones', async () => {
    const { key } = await orgWith('methods')
    const token = (await createToken(front.core.adminContext, operator, { name: 'methods', role: 'owner' })).secret
    for (const [path, ofPath] of Map.groupBy(operations, (operation) => operation.path)) {
      const described: string[] = ofPath.map(({ method }) => method)
      if (described.includes('GET') && !described.includes('HEAD')) described.push('HEAD')
      const secret = ofPath[0]!.access.startsWith('key') ? key : token
      const answer = await fetch(front.url + path.replaceAll(/\{\w+\}/g, 'x'), {
        method: 'OPTIONS',
        headers: { 'x-api-key': secret },
      })
      expect([path, answer.status]).toEqual([path, 405])
      expect([path, answer.headers.get('allow')?.split(', ').sort()]).toEqual([path, described.sort()])
    }
  })

  it('gives every operation a unique name', () => {
    expect(new Set(operations.map(({ id }) => id)).size).toBe(operations.length)
    expect(byName.size).toBe(operations.length)
  })
})

/** Fastify prints its routes as a tree: four characters per level, then a part of the path. */
function servedPaths(tree: string): string[] {
  const above: string[] = []
  const paths: string[] = []
  for (const line of tree.split('\n')) {
    const [, indent, piece, methods] = /^([│ ]*)[├└]── (\S*)( \(.*)?$/.exec(line) ?? []
    if (indent === undefined || piece === undefined) continue
    const depth = indent.length / 4
    above[depth] = (above[depth - 1] ?? '') + piece
    if (methods !== undefined && above[depth] !== '') paths.push(above[depth])
  }
  return paths
}

const toTemplate = (url: string): string => url.replaceAll(/:(\w+)/g, '{$1}')

interface Own {
  org: string
  keyId: string
  key: string
  token: string
}

let orgs = 0
async function orgWith(name: string): Promise<Own> {
  const { id: org } = await createOrg(front.core.adminContext, operator, `${name} ${++orgs}`)
  const { id: keyId, secret } = await createKey(front.core.adminContext, operator, org, {}, [])
  const token = await createToken(front.core.adminContext, operator, { name, role: 'owner', org_id: org })
  return { org, keyId, key: secret, token: token.secret }
}

/** The objects of the other organization, by path parameter; all of them contain a mark that must never be returned. */
async function possessionsOf({ org, keyId, key }: Own): Promise<Record<string, string>> {
  const body = { language: 'bash', code: 'echo other-mark >other-mark; echo other-mark', thread_id: 'other-thread' }
  const run = await front.post('/v1/sandbox/execute', body, { 'x-api-key': key })
  const { trace_id: runId } = (await run.json()) as { trace_id: string }
  const profile = await fetch(`${front.url}/admin/v1/orgs/${org}/profiles`, {
    method: 'POST',
    headers: { authorization: `Bearer ${everywhere}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'other-mark', settings: {} }),
  })
  const volume = await fetch(`${front.url}/admin/v1/orgs/${org}/volumes`, {
    method: 'POST',
    headers: { authorization: `Bearer ${everywhere}`, 'content-type': 'application/json' },
    body: JSON.stringify({ slug: 'other-volume' }),
  })
  const secret = await fetch(`${front.url}/admin/v1/orgs/${org}/secrets/OTHER_SECRET`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${everywhere}`, 'content-type': 'application/json' },
    body: JSON.stringify({ value: 'other-mark', hosts: ['other-mark.example'] }),
  })
  const upstream = await fetch(`${front.url}/admin/v1/orgs/${org}/upstreams`, {
    method: 'POST',
    headers: { authorization: `Bearer ${everywhere}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'other-mark/other-mark', url: 'https://mcp.example.com/' }),
  })
  const sandbox = { name: 'other-mark', metadata: { mark: 'other-mark' } }
  expect((await front.post('/v1/sandboxes', sandbox, { 'x-api-key': key })).status).toBe(201)
  expect([profile.status, volume.status, upstream.status, secret.status]).toEqual([201, 201, 201, 200])
  return {
    org,
    key: keyId,
    id: runId,
    thread: 'other-thread',
    profile: 'other-mark',
    volume: 'other-volume',
    secret: 'OTHER_SECRET',
    vendor: 'other-mark',
    name: 'other-mark',
  }
}

let everywhere = ''

/** Bodies that name objects of the other organization where a path does not. */
const bodies: Readonly<Record<string, (thread: string) => object>> = {
  listFiles: (id) => ({ source: 'thread', id }),
  uploadFile: (id) => ({ source: 'thread', id, path: 'f', size: 1 }),
  uploadFileByUrl: (id) => ({ source: 'thread', id, path: 'f', content_length: 1 }),
  downloadFileByUrl: (id) => ({ source: 'thread', id, path: 'other-mark' }),
  downloadFile: (id) => ({ source: 'thread', id, path: 'other-mark' }),
  deleteFiles: (id) => ({ source: 'thread', id, path: 'other-mark' }),
  putSecret: () => ({ value: 'stolen-value', hosts: ['a.example'] }),
  renameOrg: () => ({ name: 'x' }),
  switchTool: () => ({ shown: true }),
  createProfile: () => ({ name: 'x' }),
  replaceProfile: () => ({ settings: {} }),
  forkThread: () => ({ to: 'copy' }),
  exportSubject: () => ({ subject: 'other-mark' }),
  eraseSubject: () => ({ subject: 'other-mark' }),
  setHistory: () => ({ keep_code: false }),
  createVolume: () => ({ slug: 'x' }),
  setOwnCredential: () => ({ values: ['a'] }),
  beginOwnLogin: () => ({ redirect_uri: 'http://127.0.0.1/callback' }),
  loginToUpstream: () => ({ redirect_uri: 'http://127.0.0.1/callback' }),
  publishSandboxPort: () => ({ port: 80 }),
  runSandboxCommand: () => ({ command: 'true' }),
  startSandboxProcess: () => ({ command: 'true' }),
  signalSandboxProcess: () => ({ signal: 'TERM' }),
  resizeSandboxProcess: () => ({ columns: 80, rows: 24 }),
  runSandboxCode: () => ({ language: 'python', code: '1' }),
  createSandboxContext: () => ({ language: 'python' }),
  rewindSandboxContext: () => ({ calls: 1 }),
  moveSandboxFile: () => ({ from: 'a', to: 'b' }),
  copySandboxFile: () => ({ from: 'a', to: 'b' }),
  createSandboxDirectory: () => ({ path: 'a' }),
  createUpstream: () => ({ name: 'x/y', url: 'https://mcp.example.com/' }),
}

/** Path parameters that name nothing of an organization. */
const ownWords: Readonly<Record<string, string>> = {
  tool: 'files_download',
  token: 'tok_none',
  process: '1',
  port: '80',
  number: '1',
  context: 'python',
}

/** Operations that cannot name objects of another organization. A new route that has no id and is not listed here fails. */
const namesNothing = new Set([
  ...['execute', 'alive', 'ready', 'openapi', 'metrics', 'mcp', 'mcpEvents', 'endMcpSession', 'getOAuthClient'],
  ...['page', 'pageStyle', 'pageScript', 'docs', 'docsPage'],
  ...['console', 'consoleStyle', 'consoleScript', 'consoleViews', 'consoleElements'],
  // A login has the rights of its token; the stream has the organization of the token: test/protocol/console.test.ts.
  ...['beginLogin', 'getLogin', 'endLogin', 'watchChanges'],
  // Images belong to the whole instance.
  ...['listImages', 'addImage', 'listImageJobs', 'collectImages', 'getImage', 'removeImage'],
  ...['openEvents', 'sendMessage'],
  ...['listExecutions', 'listThreads', 'listVolumes', 'getUpstreamUsage'],
  // Directories of the host belong to development mode.
  'listWorkspaces',
  // Each call names its sandbox in the body; test/protocol/microsandbox-keys.test.ts calls them with keys of others.
  ...['microsandboxHealth', 'microsandboxRpc', 'startSandboxOfMicrosandbox', 'stopSandboxOfMicrosandbox'],
  ...['runCodeOfMicrosandbox', 'runCommandOfMicrosandbox', 'getMetricsOfMicrosandbox'],
  ...['createSandbox', 'listSandboxes', 'listSandboxMetrics'],
  ...['mcpWithUpstreams', 'mcpEventsWithUpstreams', 'endMcpSessionWithUpstreams'],
  ...['runtimeRpc', 'bxmcpRpc'],
  ...['listServers', 'listServersByApiPath', 'listServerTools', 'listServerToolsByApiPath'],
  // Names organizations in its body: test/stories/declared.test.ts applies them with tokens of others.
  'applyDeclaration',
  ...['listOrgs', 'createOrg', 'listAudit', 'exportAudit', 'verifyAudit', 'listTokens', 'createToken', 'revokeToken'],
  // Images belong to the server.
  ...['listImages', 'addImage', 'listImageJobs', 'collectImages', 'getImage', 'removeImage'],
  // Links are bound to their creator: test/protocol/files.test.ts.
  ...['getBlob', 'headBlob', 'putBlob'],
])

describe('two organizations', () => {
  it('never see each other, through any operation', async () => {
    everywhere = (await createToken(front.core.adminContext, operator, { name: 'all', role: 'owner' })).secret
    const [mine, other] = [await orgWith('mine'), await orgWith('other-mark')]
    const theirs = await possessionsOf(other)
    let asked = 0
    for (const [name, operation] of byName) {
      if (namesNothing.has(operation.id)) continue
      const [real, made] = [await ask(mine, name, operation, theirs), await ask(mine, name, operation, nothing)]
      asked += 1
      expect([name, real.status]).toEqual([name, made.status])
      // Uploads create what does not exist; they read no existing data.
      if (!operation.id.startsWith('uploadFile')) expect([name, real.status]).toEqual([name, 404])
      expect([name, real.text]).toEqual([name, made.text])
    }
    expect(asked).toBeGreaterThan(15)
    const left = await front.post(
      '/v1/files/list',
      { source: 'thread', id: 'other-thread' },
      { 'x-api-key': other.key },
    )
    expect(await left.text()).toContain('other-mark')
  })

  const nothing: Record<string, string> = {
    org: 'org_none',
    key: 'key_none',
    id: 'trc_none',
    thread: 'none-thread',
    profile: 'none-mark',
    volume: 'none-volume',
    secret: 'NONE_SECRET',
    vendor: 'none-mark',
    name: 'none-mark',
  }

  async function ask(mine: Own, name: string, operation: Operation, ids: Record<string, string>) {
    const { method, path: template } = operation
    const words = { ...ids, ...ownWords }
    const path = template.replaceAll(/\{(\w+)\}/g, (_, word: string) => {
      const value = words[word as keyof typeof words]
      if (value === undefined) throw new Error(`no recipe for {${word}} of ${name}`)
      return value
    })
    const body = bodies[operation.id]?.(ids.thread ?? '')
    if (path === template && body === undefined) throw new Error(`no recipe for ${name}`)
    const secret = operation.access.startsWith('key') ? mine.key : mine.token
    const sends = body !== undefined || method === 'POST' || (operation.body && !isRaw(operation.body))
    const response = await fetch(front.url + path, {
      method,
      headers: { 'x-api-key': secret, ...(sends && { 'content-type': 'application/json' }) },
      ...(sends && { body: JSON.stringify(body ?? {}) }),
    })
    let text = await response.text()
    for (const [word, id] of Object.entries(ids)) text = text.replaceAll(id, `{${word}}`)
    text = text.replaceAll(/"(url|expires_at)":"[^"]*"/g, '')
    expect([name, text.includes('other-mark')]).toEqual([name, false])
    return { status: response.status, text }
  }
})

describe('a response', () => {
  it('matches its schema in the document', async () => {
    const own = await orgWith('answers')
    const token = (await createToken(front.core.adminContext, operator, { name: 'answers', role: 'owner' })).secret
    const ajv = new Ajv2020({ strict: false })
    const holds = async (name: string, path: string, body?: object) => {
      const [method = ''] = name.split(' ')
      const response = await fetch(front.url + path, {
        method,
        headers: {
          'x-api-key': byName.get(name)!.access.startsWith('key') ? own.key : token,
          ...(method !== 'GET' && { 'content-type': 'application/json' }),
        },
        ...(body && { body: JSON.stringify(body) }),
      })
      const schema = byName.get(name)!.answers[response.status]
      expect([name, response.status, schema !== undefined]).toEqual([name, response.status, true])
      if (schema === undefined || schema === null || isRaw(schema)) return
      const validate = ajv.compile(schema)
      validate(await response.json())
      expect([name, validate.errors]).toEqual([name, null])
    }
    const org = `/admin/v1/orgs/${own.org}`
    const at = '/admin/v1/orgs/{org}'
    await holds('POST /v1/sandbox/execute', '/v1/sandbox/execute', {
      language: 'bash',
      code: 'echo x >f',
      thread_id: 'a',
    })
    await holds('POST /v1/files/list', '/v1/files/list', { source: 'thread', id: 'a' })
    await holds('POST /v1/files/upload', '/v1/files/upload', { source: 'thread', id: 'a', path: 'g', size: 1 })
    await holds('POST /v1/files/download', '/v1/files/download', { source: 'thread', id: 'a', path: 'f' })
    await holds('POST /v1/files/delete', '/v1/files/delete', { source: 'thread', id: 'a', path: 'f' })
    await holds('GET /v1/executions', '/v1/executions?thread_id=a')
    const { data } = (await (
      await fetch(`${front.url}/v1/executions`, { headers: { 'x-api-key': own.key } })
    ).json()) as {
      data: { trace_id: string }[]
    }
    const runId = data[0]?.trace_id ?? ''
    await holds('GET /v1/executions/{id}', `/v1/executions/${runId}`)
    await holds('GET /v1/executions/{id}/output', `/v1/executions/${runId}/output`)
    await holds('GET /v1/threads', '/v1/threads')
    await holds('GET /v1/threads/{id}', '/v1/threads/a')
    await holds('POST /v1/threads/{id}/fork', '/v1/threads/a/fork', { to: 'b' })
    await holds('DELETE /v1/threads/{id}', '/v1/threads/b')
    await holds('GET /v1/volumes', '/v1/volumes')
    await holds('GET /v1/mcp/servers', '/v1/mcp/servers')
    await holds('GET /v1/mcp/usage', '/v1/mcp/usage')
    await holds('GET /admin/v1/orgs', '/admin/v1/orgs')
    await holds('POST /admin/v1/orgs', '/admin/v1/orgs', { name: 'answers made' })
    const declared = { orgs: { 'answers declared': { keys: { agents: {} } } } }
    await holds('POST /admin/v1/apply', '/admin/v1/apply', declared)
    await holds(`GET ${at}`, org)
    await holds(`POST ${at}/keys`, `${org}/keys`, { env_vars: { A: 'b' }, tools: ['sandbox_execute'] })
    await holds(`GET ${at}/keys`, `${org}/keys`)
    await holds(`GET ${at}/keys/{key}`, `${org}/keys/${own.keyId}`)
    await holds(`POST ${at}/keys/{key}/rotate`, `${org}/keys/${own.keyId}/rotate`, {})
    await holds(`POST ${at}/profiles`, `${org}/profiles`, { name: 'p', settings: { env: { A: 'b' } } })
    await holds(`GET ${at}/profiles`, `${org}/profiles`)
    await holds(`PUT ${at}/limits`, `${org}/limits`, { concurrent_runs: 3 })
    await holds(`POST ${at}/upstreams`, `${org}/upstreams`, { name: 'a/b', url: 'https://mcp.example.com/' })
    await holds(`GET ${at}/upstreams`, `${org}/upstreams`)
    await holds(`GET ${at}/upstreams/{vendor}/{name}`, `${org}/upstreams/a/b`)
    await holds(`GET ${at}/upstreams/{vendor}/{name}/credentials`, `${org}/upstreams/a/b/credentials`)
    await holds('GET /oauth/client.json', '/oauth/client.json')
    await holds(`GET ${at}/usage`, `${org}/usage`)
    await holds(`GET ${at}/tools`, `${org}/tools`)
    await holds(`PUT ${at}/tools/{tool}`, `${org}/tools/files_upload`, { shown: true })
    await holds(`GET ${at}/history`, `${org}/history`)
    await holds(`PATCH ${at}/history`, `${org}/history`, { keep_code: true })
    await holds(`GET ${at}/webhook-secret`, `${org}/webhook-secret`)
    await holds(`POST ${at}/webhook-secret/rotate`, `${org}/webhook-secret/rotate`)
    await holds(`POST ${at}/volumes`, `${org}/volumes`, { slug: 'v' })
    await holds(`GET ${at}/volumes`, `${org}/volumes`)
    await holds(`GET ${at}/volumes/{volume}`, `${org}/volumes/v`)
    await holds(`PATCH ${at}/volumes/{volume}`, `${org}/volumes/v`, { name: 'for people' })
    const secret = { value: 'a-secret-value', hosts: ['api.example.com'], places: ['header', 'query'] }
    await holds(`PUT ${at}/secrets/{secret}`, `${org}/secrets/API_KEY`, secret)
    await holds(`GET ${at}/secrets`, `${org}/secrets`)
    await holds(`GET ${at}/secrets/{secret}`, `${org}/secrets/API_KEY`)
    await holds(`GET ${at}/executions`, `${org}/executions`)
    await holds(`GET ${at}/executions/{id}`, `${org}/executions/${runId}`)
    await holds(`GET ${at}/threads`, `${org}/threads`)
    await holds(`GET ${at}/threads/{thread}/files`, `${org}/threads/a/files`)
    await holds('POST /console/login', '/console/login', {})
    await holds('GET /admin/v1/audit', '/admin/v1/audit')
    await holds('POST /admin/v1/audit/verify', '/admin/v1/audit/verify', {})
    await holds(`POST ${at}/subjects/erase`, `${org}/subjects/erase`, { subject: 'nobody' })
    await holds('POST /admin/v1/images', '/admin/v1/images', { name: 'own/image:1' })
    for (const path of ['/admin/v1/images', '/admin/v1/image-jobs']) await holds(`GET ${path}`, path)
    await holds('POST /admin/v1/image-collections', '/admin/v1/image-collections', {})
    await holds('GET /admin/v1/tokens', '/admin/v1/tokens')
    await holds('POST /admin/v1/tokens', '/admin/v1/tokens', { name: 't', role: 'member' })
  })
})
