import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey, rotateKey, updateKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { productInventory } from '../../src/tools/catalog.ts'
import { type Front, openFront } from '../support/front.ts'

/** The test says what it has. */
type Json = ReturnType<typeof JSON.parse>
type Headers = Readonly<Record<string, string>>

const toolNames = productInventory.tools.map(({ name }) => name)
let front: Front
/** A key of all namespaces, one of the namespace blue, and one of another organization. */
let own: string
let blue: string
let foreign: string
beforeAll(async () => {
  front = await openFront(undefined, { dev: false, trustedProxies: ['127.0.0.1'] })
  const create = async (orgId: string, namespaces: string[] | null = null) =>
    (await createKey(front.core.adminContext, operator, orgId, { namespaces, secret_form: 'microsandbox' }, toolNames))
      .secret
  const { id } = await createOrg(front.core.adminContext, operator, 'one')
  own = await create(id)
  blue = await create(id, ['blue'])
  foreign = await create((await createOrg(front.core.adminContext, operator, 'two')).id)
  for (const namespace of ['default', 'green']) await call(own, 'sandbox.start', { sandbox: 'mine', namespace })
})
afterAll(() => front.close())

async function post(path: string, body: unknown, headers: Headers): Promise<{ status: number; body: Json }> {
  const response = await fetch(front.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })
  return { status: response.status, body: await response.json() }
}

const bearer = (key: string): Headers => ({ authorization: `Bearer ${key}` })
const call = (key: string, method: string, params: object) =>
  post('/api/v1/rpc', { jsonrpc: '2.0', method, params, id: 1 }, bearer(key))
/** `beside`: more parameters of the call, beside the arguments. */
const tool = async (key: string, name: string, args: object, beside: object = {}) =>
  (await call(key, 'tools/call', { name, arguments: args, ...beside })).body.result

const namesOf = ({ body }: { body: Json }): string[] =>
  body.result.sandboxes.map(({ namespace, name }: Json) => `${namespace}/${name}`)

/** Methods with their alias and their tool, and the parameters that each needs. */
const methods = [
  ['sandbox.stop', '/api/v1/sandbox/stop', 'sandbox_stop', {}],
  ['sandbox.repl.run', '/api/v1/sandbox/repl/run', 'sandbox_run_code', { code: '1', language: 'python' }],
  ['sandbox.command.run', '/api/v1/sandbox/command/run', 'sandbox_run_command', { command: 'true' }],
  ['sandbox.metrics.get', '/api/v1/sandbox/metrics/get', 'sandbox_get_metrics', {}],
] as const

describe('keys with the form of microsandbox', () => {
  it('are accepted as its clients send them, and keep their form when they are rotated', async () => {
    expect(own).toMatch(/^msb_[\w-]{43}$/)
    for (const headers of [bearer(own), { authorization: own }, { 'x-api-key': own }])
      expect((await post('/api/v1/sandbox/metrics/get', {}, headers)).status).toBe(200)
    const org = (await createOrg(front.core.adminContext, operator, 'rotating')).id
    const { id } = await createKey(front.core.adminContext, operator, org, { secret_form: 'microsandbox' }, toolNames)
    expect((await rotateKey(front.core.adminContext, operator, { orgId: org, id }, 0)).secret).toMatch(/^msb_/)
  })

  it('are refused with the errors of microsandbox if they are missing or wrong', async () => {
    const body = { jsonrpc: '2.0', method: 'sandbox.metrics.get', params: {}, id: 1 }
    expect(await post('/api/v1/rpc', body, {})).toMatchObject({ status: 401, body: { code: 1006 } })
    for (const headers of [bearer('msb_none'), { authorization: 'msb_none' }])
      expect(await post('/api/v1/rpc', body, headers)).toMatchObject({ status: 401, body: { code: 1004 } })
  })
})

describe('a call without an ID that fails', () => {
  it('is answered with the error of microsandbox, and is no fault of the server', async () => {
    const rpc = (method: string, params: object) => post('/api/v1/rpc', { jsonrpc: '2.0', method, params }, bearer(own))
    const code = { sandbox: 'mine', code: '1', language: 'cobol' }
    const slow = { sandbox: 'mine', command: 'sleep', args: ['60'], timeout: 0.2 }
    expect(await rpc('sandbox.none', {})).toMatchObject({ status: 404, body: { code: 4001 } })
    expect(await rpc('sandbox.repl.run', code)).toMatchObject({ status: 400, body: { code: 2001 } })
    expect(await post('/api/v1/sandbox/repl/run', code, bearer(own))).toMatchObject({
      status: 400,
      body: { code: 2001 },
    })
    const { status, body } = await post('/api/v1/sandbox/command/run', slow, bearer(own))
    expect([status, body.error]).toEqual([400, 'Execution timed out after 0.2 seconds'])
    expect(front.lines.filter((line) => line.includes('"level":"error"'))).toEqual([])
  })
})

describe('a call in progress', () => {
  it('ends when its key loses the tools that it uses', async () => {
    const { adminContext } = front.core
    const orgId = (await createOrg(adminContext, operator, 'losing')).id
    const key = await createKey(adminContext, operator, orgId, { secret_form: 'microsandbox' }, toolNames)
    await call(key.secret, 'sandbox.start', { sandbox: 'mine' })
    const params = { sandbox: 'mine', command: 'sleep', args: ['60'] }
    const running = call(key.secret, 'sandbox.command.run', params)
    await expect.poll(() => front.core.openRequests.usage.requests).toBe(1)
    await updateKey(adminContext, operator, { orgId, id: key.id }, { tools: ['sandbox_start'] }, toolNames)
    expect(await running).toMatchObject({ status: 403, body: { code: 3002 } })
  })
})

describe.each(methods)('%s', (method, alias, name, params) => {
  const of = (namespace?: string) => ({ sandbox: 'mine', ...params, ...(namespace !== undefined && { namespace }) })

  it('never reaches a sandbox of another organization', async () => {
    for (const namespace of [undefined, 'default', 'green']) {
      expect(await call(foreign, method, of(namespace))).toMatchObject({ status: 404, body: { code: 4001 } })
      expect(await post(alias, of(namespace), bearer(foreign))).toMatchObject({ status: 404, body: { code: 4001 } })
      expect((await tool(foreign, name, of(namespace))).isError).toBe(true)
    }
  })

  it('never leaves the namespaces of its key, wherever they are named', async () => {
    for (const namespace of ['default', 'green']) {
      expect(await call(blue, method, of(namespace))).toMatchObject({ status: 403, body: { code: 3001 } })
      expect(await post(alias, of(namespace), bearer(blue))).toMatchObject({ status: 403, body: { code: 3001 } })
      const inside = await tool(blue, name, of(namespace))
      const beside = await tool(blue, name, of(), { namespace })
      for (const { isError, content } of [inside, beside]) {
        expect(isError).toBe(true)
        expect(content[0].text).toContain(namespace)
      }
    }
    // Its own namespace is meant if none is named, and has no such sandbox.
    expect(await call(blue, method, of())).toMatchObject({ status: 404, body: { code: 4001 } })
  })
})

describe('namespaces', () => {
  it('of two keys hold sandboxes of the same name apart', async () => {
    expect((await call(blue, 'sandbox.start', { sandbox: 'mine' })).status).toBe(200)
    expect((await call(foreign, 'sandbox.start', { sandbox: 'mine' })).status).toBe(200)
    const write = (key: string, text: string) =>
      call(key, 'sandbox.command.run', { sandbox: 'mine', command: 'sh', args: ['-c', `echo ${text} > whose`] })
    for (const [key, text] of [
      [own, 'own'],
      [blue, 'blue'],
      [foreign, 'foreign'],
    ] as const)
      await write(key, text)
    for (const [key, text] of [
      [own, 'own'],
      [blue, 'blue'],
      [foreign, 'foreign'],
    ] as const) {
      const { result } = (await call(key, 'sandbox.command.run', { sandbox: 'mine', command: 'cat', args: ['whose'] }))
        .body
      expect(result.output).toEqual([{ stream: 'stdout', text }])
    }
  })

  it('are listed as far as the key reaches', async () => {
    const all = { namespace: '*' }
    expect(namesOf(await call(own, 'sandbox.metrics.get', all))).toEqual(['blue/mine', 'default/mine', 'green/mine'])
    expect(namesOf(await call(blue, 'sandbox.metrics.get', all))).toEqual(['blue/mine'])
    expect(namesOf(await call(foreign, 'sandbox.metrics.get', all))).toEqual(['default/mine'])
    for (const result of [
      await tool(blue, 'sandbox_get_metrics', all),
      await tool(blue, 'sandbox_get_metrics', {}, all),
    ]) {
      expect(result.content[0].text).toContain('blue')
      expect(result.content[0].text).not.toContain('green')
    }
  })

  it.each([
    ['sandbox_start', { sandbox: 'named' }],
    ['sandbox_run_command', { sandbox: 'named', command: 'true' }],
    ['sandbox_get_metrics', { sandbox: 'named' }],
    ['sandbox_stop', { sandbox: 'named' }],
  ])('of %s are taken from its arguments, and from beside them', async (name, args) => {
    for (const [given, beside] of [
      [{ ...args, namespace: 'green' }, {}],
      [args, { namespace: 'green' }],
      [{ ...args, namespace: 'green' }, { namespace: 'default' }],
    ] as const)
      expect((await tool(own, name, given, beside)).isError).toBeUndefined()
    const listed = await fetch(`${front.url}/v1/sandboxes?namespace=green`, { headers: { 'x-api-key': own } })
    expect(((await listed.json()) as Json).data.map((one: Json) => one.name)).toContain('named')
  })
})
