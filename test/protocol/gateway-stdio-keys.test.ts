/** What keys that call the same program can see of each other. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createUpstream, testUpstream, type UpstreamSettings } from '../../src/core/admin/upstreams.ts'
import { type Front, openFront } from '../support/front.ts'
import { isAlive, know } from '../support/processes.ts'
import { plainServer } from '../support/stdio-upstream.ts'

let front: Front
let org: string
let first: string
let second: string
beforeAll(async () => {
  front = await openFront(undefined, { dev: false })
  org = (await createOrg(front.core.adminContext, operator, 'keys')).id
  first = await newKey()
  second = await newKey()
})
afterAll(() => front.close())

const newKey = async (): Promise<string> =>
  (await createKey(front.core.adminContext, operator, org, { tools: null }, [])).secret

const register = (name: string, settings: UpstreamSettings = {}) =>
  createUpstream(front.core.adminContext, operator, { orgId: org, name }, { program: plainServer(), ...settings })

const headersOf = (key: string) => ({ authorization: `Bearer ${key}`, 'content-type': 'application/json' })

/** Calls a tool as a client without a session. @returns the status, and the text of the result or of the error. */
async function call(key: string, name: string, tool: string, given: object = {}) {
  const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: tool, arguments: given } }
  const response = await front.post(`/${name}/sse`, message, headersOf(key))
  const text = await response.text()
  const data = text.split('\n').findLast((line) => line.startsWith('data: '))
  const answer = JSON.parse(data?.slice('data: '.length) ?? text)
  return { status: response.status, error: answer.error, text: String(answer.result?.content?.[0].text ?? text) }
}

const setCredential = (key: string, name: string, value: string) =>
  fetch(`${front.url}/v1/mcp/${name}/credential`, {
    ...{ method: 'PUT', headers: headersOf(key), body: JSON.stringify({ values: [value] }) },
  })

const credential = { in: 'env', name: 'API_TOKEN', values: ['token-of-all'] } as const

describe('keys with credentials of their own', () => {
  beforeAll(async () => {
    await register('acme/own', { credential, credential_mode: 'per_key_or_shared' })
    expect((await setCredential(first, 'acme/own', 'token-of-first')).status).toBe(204)
    expect((await setCredential(second, 'acme/own', 'token-of-second')).status).toBe(204)
  })

  it('have sandboxes of their own, one for each server and credential', async () => {
    const third = await newKey()
    const keys = [first, second, third]
    const tokens = []
    for (const key of keys) tokens.push((await call(key, 'acme/own', 'variable', { name: 'API_TOKEN' })).text)
    expect(tokens).toEqual(['token-of-first', 'token-of-second', 'token-of-all'])
    const upstream = await front.store.upstreams.get(org, 'acme/own')
    const running = front.core.upstreamPrograms.list().filter(({ upstreamId }) => upstreamId === upstream!.id)
    expect(running).toHaveLength(keys.length)
  })

  it('read nothing of what the process of another key has written, nor does an administrator', async () => {
    const ended = await call(first, 'acme/own', 'exit')
    expect(ended.text).toMatch(/exited with code 3; it wrote: .*fatal: token is/)
    expect(ended.text).not.toContain('token-of-first')
    const other = await call(second, 'acme/own', 'exit')
    expect(other.text).toContain('fatal: token is')
    expect(other.text).not.toMatch(/token-of-(first|second)/)
    const { stderr } = await testUpstream(front.core.adminContext, operator, { orgId: org, name: 'acme/own' })
    expect(stderr).not.toMatch(/token-of-(first|second)/)
  })
})

describe('a key whose own credential fails', () => {
  it('does not keep other keys from the server', async () => {
    await register('acme/apart', { credential, credential_mode: 'per_key_or_shared' })
    expect((await setCredential(first, 'acme/apart', 'token-of-first')).status).toBe(204)
    const failed = []
    for (let n = 0; n < 7; n++) failed.push(await call(first, 'acme/apart', 'exit'))
    expect(failed.map(({ status }) => status)).toEqual(Array(7).fill(502))
    expect(failed.at(-1)!.text).toContain('in a row')
    expect(await call(second, 'acme/apart', 'echo', { text: 'works' })).toMatchObject({ status: 200, text: 'works' })
  })
})

describe('keys that share a credential', () => {
  it('read only what their own process has written before it ended', async () => {
    await register('acme/shared-credential')
    const words = async (key: string) => (await call(key, 'acme/shared-credential', 'exit')).text
    const mine = await words(first)
    await expect.poll(() => words(second), { timeout: 20_000 }).toContain('exited with code 3')
    const count = (text: string) => text.match(/fatal: token is/g)?.length
    expect([count(mine), count(await words(first))].filter((found) => found !== undefined && found > 1)).toEqual([])
  })
})

describe('a program', () => {
  it('is refused where its credential has no value, and not started', async () => {
    await register('acme/empty', { credential: { ...credential, values: [] } })
    const { status, error } = await call(first, 'acme/empty', 'pid')
    expect([status, error]).toEqual([502, 'configuration_error'])
    const upstream = await front.store.upstreams.get(org, 'acme/empty')
    expect(front.core.upstreamPrograms.list().map(({ upstreamId }) => upstreamId)).not.toContain(upstream!.id)
  })

  it('is ended when its client ends its session', async () => {
    await register('acme/session')
    const client = new Client({ name: 'judge', version: '1' })
    const requestInit = { headers: { authorization: `Bearer ${first}` } }
    const transport = new StreamableHTTPClientTransport(new URL(`${front.url}/acme/session/sse`), { requestInit })
    await client.connect(transport as Transport)
    const { content } = await client.callTool({ name: 'pid' })
    const process = know(Number((content as { text: string }[])[0]!.text))
    await transport.terminateSession()
    await expect.poll(() => isAlive(process), { timeout: 10_000 }).toBe(false)
    await client.close()
  })

  it('is registered by administrators only', async () => {
    const body = JSON.stringify({ name: 'acme/mine', transport: 'stdio', program: { command: 'id' } })
    const url = `${front.url}/admin/v1/orgs/${org}/upstreams`
    const response = await fetch(url, { method: 'POST', headers: headersOf(first), body })
    expect(response.status).toBe(401)
    expect(await front.store.upstreams.get(org, 'acme/mine')).toBeUndefined()
  })
})
