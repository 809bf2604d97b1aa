import { Client as ClientV2, StreamableHTTPClientTransport as TransportV2 } from '@modelcontextprotocol/client'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import {
  createUpstream,
  refreshUpstream,
  removeUpstream,
  testUpstream,
  type UpstreamRef,
} from '../../src/core/admin/upstreams.ts'
import type { ProgramSettings } from '../../src/core/upstreams/programs/program.ts'
import { type Front, openFront } from '../support/front.ts'
import { officialServer, serversOfVersions } from '../support/stdio-upstream.ts'

const older = { command: officialServer.command, args: officialServer.args }
const programs = Object.entries({ older, ...serversOfVersions })

let front: Front
let headers: { authorization: string }
beforeAll(async () => {
  front = await openFront(undefined, { dev: false })
})
afterAll(() => front.close())

const urlOf = (name: string) => new URL(`${front.url}/${name}/sse`)

/** Registers a program in an organization of its own, since few programs of one run at once, and creates its key. */
async function register(name: string, program: ProgramSettings): Promise<UpstreamRef> {
  const orgId = (await createOrg(front.core.adminContext, operator, name.replace('/', '-'))).id
  headers = { authorization: `Bearer ${(await createKey(front.core.adminContext, operator, orgId, {}, [])).secret}` }
  await createUpstream(front.core.adminContext, operator, { orgId, name }, { program })
  return { orgId, name }
}

/** A client of the versions up to 2025-11-25, which opens a session. */
async function olderClient(name: string): Promise<Client> {
  const client = new Client({ name: 'older', version: '1' })
  await client.connect(new StreamableHTTPClientTransport(urlOf(name), { requestInit: { headers } }) as Transport)
  return client
}

/** A client that negotiates 2026-07-28. */
async function newerClient(name: string): Promise<ClientV2> {
  const client = new ClientV2({ name: 'newer', version: '1' }, { versionNegotiation: { mode: { pin: '2026-07-28' } } })
  await client.connect(new TransportV2(urlOf(name), { requestInit: { headers } }))
  return client
}

/** Calls a tool as a client without a session. */
async function single(name: string, tool: string): Promise<string> {
  const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: tool, arguments: {} } }
  return (await front.post(`/${name}/sse`, message, headers)).text()
}

describe.each(programs)('a program that speaks %s versions', (kind, program) => {
  const tool = kind === 'older' ? 'hello' : 'era'

  it.each(['session', 'shared'] as const)('serves clients of every version (%s)', async (sharing) => {
    const name = `acme/${kind.toLowerCase().replaceAll(/\W+/g, '-')}-${sharing}`
    const ref = await register(name, { ...program, sharing })
    const said = { older: ['hello'], newer: ['newer'], both: ['older', 'newer'] }[kind] ?? ['newer']
    const answer = { content: [{ type: 'text', text: expect.toBeOneOf(said) }] }
    for (const first of [olderClient, newerClient, olderClient]) {
      const client = await first(name)
      expect((await client.listTools()).tools.map((one) => one.name)).toContain(tool)
      expect(await client.callTool({ name: tool, arguments: {} })).toMatchObject(answer)
      await client.close()
    }
    expect(await single(name, tool)).toMatch(new RegExp(said.join('|')))
    expect((await testUpstream(front.core.adminContext, operator, ref)).tools.map((one) => one.name)).toContain(tool)
    expect((await refreshUpstream(front.core.adminContext, operator, ref)).tools).toBeGreaterThan(0)
    expect((await (await olderClient(name)).listTools()).tools.map((one) => one.name)).toContain(tool)
    await removeUpstream(front.core.adminContext, operator, ref)
  })
})

describe('a program that only speaks 2026-07-28', () => {
  it('reports progress and errors to clients of every version', async () => {
    const name = 'acme/reporting'
    const program = serversOfVersions['newer, of the official SDK']
    const ref = await register(name, program)
    for (const open of [newerClient, olderClient]) {
      const client = await open(name)
      const reported: number[] = []
      const onprogress = ({ progress }: { progress: number }) => void reported.push(progress)
      const call = { name: 'progress', arguments: {} }
      if (client instanceof Client) await client.callTool(call, undefined, { onprogress })
      else await client.callTool(call, { onprogress })
      expect(reported).toEqual([1])
      await expect(client.callTool({ name: 'fail', arguments: {} })).rejects.toThrow('failed on purpose')
      await client.close()
    }
    await removeUpstream(front.core.adminContext, operator, ref)
  })
})
