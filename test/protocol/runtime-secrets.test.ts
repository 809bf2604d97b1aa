import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { loadConfig, settingViews } from '../../src/config.ts'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { putSecret } from '../../src/core/admin/secrets.ts'
import { createToken } from '../../src/core/admin/tokens.ts'
import { createUpstream } from '../../src/core/admin/upstreams.ts'
import { runtimePrompts } from '../../src/tools/runtime/prompts.ts'
import { runtimeTools } from '../../src/tools/runtime/tools.ts'
import { type Front, openFront, testProfile } from '../support/front.ts'
import { failing, rightInput } from '../support/runtime-inputs.ts'
import { plainServer } from '../support/stdio-upstream.ts'

/** What no report may contain, by where it was planted. */
const planted = {
  profileVariable: 'planted-profile-variable-1',
  keyVariable: 'planted-key-variable-2',
  callVariable: 'planted-call-variable-3',
  code: 'planted-code-4',
  output: 'planted-output-5',
  header: 'planted-header-6',
  query: 'planted-query-7',
  body: 'planted-body-8',
  credential: 'planted-credential-9',
  metadata: 'planted-metadata-10',
  networkSecret: 'planted-network-secret-11',
  upstreamHeader: 'planted-upstream-header-12',
  webhook: 'planted-webhook-path-13',
  traceState: 'planted=trace-state-14',
  programCredential: 'planted-program-credential-15',
  programVariable: 'planted-program-variable-16',
  masterKey: 'cGxhbnRlZC1tYXN0ZXIta2V5LTExLXBsYW50ZWQhISE=',
}

let front: Front
let token: string
let key: string
const secrets = (): string[] => [...Object.values(planted), token, key]

beforeAll(async () => {
  front = await openFront({ ...testProfile, env: { PLANTED: planted.profileVariable } }, { dev: false })
  const { adminContext } = front.core
  token = (await createToken(adminContext, operator, { name: 'secrets', role: 'owner' })).secret
  const org = await createOrg(adminContext, operator, 'Secrets')
  key = (await createKey(adminContext, operator, org.id, { env_vars: { PLANTED: planted.keyVariable } }, [])).secret
  await createUpstream(
    adminContext,
    operator,
    { orgId: org.id, name: 'acme/secret' },
    {
      url: 'http://127.0.0.1:9/mcp',
      headers: { 'x-upstream': planted.upstreamHeader },
      credential: { in: 'header', name: 'authorization', prefix: 'Bearer ', values: [planted.credential] },
    },
  )
  await createUpstream(
    adminContext,
    operator,
    { orgId: org.id, name: 'acme/program' },
    {
      program: plainServer(),
      env: { PLANTED: planted.programVariable },
      credential: { in: 'env', name: 'API_TOKEN', values: [planted.programCredential] },
    },
  )
  const secret = { value: planted.networkSecret, hosts: ['api.example.com'] }
  await putSecret(adminContext, operator, { orgId: org.id, name: 'API_KEY' }, secret)
  await useAll()
})
afterAll(() => front.close())

/** Uses the server with everything that was planted, successfully and not, and makes every call slow. */
async function useAll(): Promise<void> {
  for (const calls of [front.metrics.recent.requests, front.metrics.recent.queries, front.metrics.recent.outbound])
    calls.configure({ threshold_ms: 0 })
  front.log.level = 'trace'
  const headers = {
    authorization: `Bearer ${key}`,
    'x-planted': planted.header,
    cookie: planted.header,
    tracestate: planted.traceState,
  }
  const run = {
    language: 'bash',
    code: `echo ${planted.output} # ${planted.code}`,
    env_vars: { PLANTED: planted.callVariable },
    metadata: { planted: planted.metadata },
  }
  expect((await front.post('/v1/sandbox/execute', run, headers)).status).toBe(200)
  const detached = { ...run, webhook_url: `http://127.0.0.1:9/${planted.webhook}` }
  expect((await front.post('/v1/sandbox/execute', detached, { ...headers, prefer: 'respond-async' })).status).toBe(202)
  await front.post(`/v1/sandbox/execute?planted=${planted.query}`, run, headers)
  await front.post('/v1/sandbox/execute', `{"${planted.body}`, headers)
  await front.post(
    '/mcp',
    { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: planted.body, arguments: {} } },
    headers,
  )
  await front.post(
    '/acme/secret/sse',
    { jsonrpc: '2.0', id: 1, method: 'tools/list', params: { planted: planted.body } },
    headers,
  )
  // One process writes its credential to standard error and ends; the next one runs on.
  const ofProgram = async (name: string, given: object) => {
    const params = { name, arguments: given }
    return (
      await front.post('/acme/program/sse', { jsonrpc: '2.0', id: 1, method: 'tools/call', params }, headers)
    ).text()
  }
  expect(await ofProgram('exit', {})).toContain('token is [redacted]')
  expect(await ofProgram('variable', { name: 'API_TOKEN' })).toContain(planted.programCredential)
  // An error of the server whose message contains secrets in their usual forms.
  front.log.error(
    { err: new Error(`Bearer ${key}`), authorization: token, env: { PLANTED: planted.keyVariable } },
    'failed',
  )
}

async function rpc(method: string, params: object): Promise<string> {
  const response = await front.post(
    '/runtime/rpc',
    { jsonrpc: '2.0', id: 1, method, params },
    { authorization: `Bearer ${token}` },
  )
  return response.text()
}

/** Besides what each tool needs: as much as it returns at most. */
const given: Readonly<Record<string, object>> = {
  ...rightInput,
  logging_read_entries: { limit: 500 },
  logging_search_entries: { keyword: 'failed', limit: 500 },
  sql_get_slow_queries: { limit: 500 },
  requests_get_slow_requests: { limit: 500 },
  slow_http_get_calls: { limit: 500 },
  runtime_get_config_value: { path: 'master_key' },
  node_get_hot_threads: { process: 'front', durationMs: 100 },
}

/** Tools that read, then those that change what the others return. */
const tools = runtimeTools.toSorted((a, b) => Number(a.isWrite) - Number(b.isWrite)).map(({ name }) => name)

describe('what was planted', () => {
  it('was used: the log and the slow calls name the requests', async () => {
    const [log, slow] = [
      await rpc('tools/call', { name: 'logging_read_entries', arguments: { limit: 500 } }),
      await rpc('tools/call', { name: 'requests_get_slow_requests' }),
    ]
    expect(log).toContain('failed')
    expect(slow).toContain('POST /v1/sandbox/execute')
    expect(await rpc('tools/call', { name: 'http_get_clients' })).toContain('"processes":1')
    expect(await rpc('tools/call', { name: 'sql_get_slow_queries', arguments: { limit: 500 } })).toContain(
      'insert into',
    )
  })

  it.each(tools)('is not in the report of %s', async (name) => {
    const report = await rpc('tools/call', { name, arguments: given[name] ?? failing[name]?.[0] ?? {} })
    expect(secrets().filter((secret) => report.includes(secret))).toEqual([])
  })

  it.each(runtimePrompts.map(({ name }) => name))('is not in the prompt %s', async (name) => {
    const { arguments: known = [] } = runtimePrompts.find((prompt) => prompt.name === name)!
    const values = Object.fromEntries(known.map((argument) => [argument.name, 'acme/program']))
    const prompt = await rpc('prompts/get', { name, arguments: values })
    expect(JSON.parse(prompt).result.messages.length).toBeGreaterThan(0)
    expect(secrets().filter((secret) => prompt.includes(secret))).toEqual([])
  })

  it('is not in a resource, the list of prompts, the metrics or the log of any level', async () => {
    const { result } = JSON.parse(await rpc('resources/list', {})) as { result: { resources: { uri: string }[] } }
    const texts = await Promise.all(result.resources.map(({ uri }) => rpc('resources/read', { uri })))
    texts.push(await rpc('prompts/list', {}))
    expect(front.lines.some((line) => line.includes('"level":"debug"'))).toBe(true)
    const metrics = await fetch(`${front.url}/metrics`, { headers: { authorization: `Bearer ${token}` } })
    for (const text of [...texts, await metrics.text(), front.lines.join('')])
      expect(secrets().filter((secret) => text.includes(secret))).toEqual([])
  })

  it('is not in the configuration as reports show it', () => {
    const env = {
      GLOVEBOX_MASTER_KEY: planted.masterKey,
      GLOVEBOX_ENV: JSON.stringify({ PLANTED: planted.profileVariable }),
    }
    const views = settingViews(loadConfig({ flags: {}, env, file: undefined }))
    expect(views.find(({ name }) => name === 'master_key')).toMatchObject({ value: '[hidden]', source: 'variable' })
    expect(secrets().filter((secret) => JSON.stringify(views).includes(secret))).toEqual([])
  })
})
