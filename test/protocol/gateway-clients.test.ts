import { spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { createMCPClient } from '@ai-sdk/mcp'
import { MultiServerMCPClient } from '@langchain/mcp-adapters'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js'
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js'
import { StreamableHTTPClientTransport as HttpV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createUpstream, refreshUpstream } from '../../src/core/admin/upstreams.ts'
import { type Front, openFront } from '../support/front.ts'
import { newServer } from '../support/sse-upstream.ts'
import { openStatefulUpstream, type TestUpstream } from '../support/upstreams.ts'

const bin = (name: string) => join(import.meta.dirname, '../../node_modules/.bin', name)

let front: Front
let upstream: TestUpstream
let directory: string
let headers: { authorization: string }
beforeAll(async () => {
  front = await openFront(undefined, { dev: false })
  const { adminContext } = front.core
  const orgId = (await createOrg(adminContext, operator, 'clients')).id
  const { secret } = await createKey(adminContext, operator, orgId, {}, [])
  headers = { authorization: `Bearer ${secret}` }
  upstream = await openStatefulUpstream(undefined, newServer)
  const ref = { orgId, name: 'acme/tools' }
  await createUpstream(adminContext, operator, ref, { url: upstream.url })
  await refreshUpstream(adminContext, operator, ref)
  directory = await mkdtemp(join(tmpdir(), 'glovebox-gateway-clients-'))
})
afterAll(async () => {
  await front.close()
  upstream.close()
  await rm(directory, { recursive: true })
})

/** Where clients reach the upstream, with the prefix of its tools there. */
const places = [
  ['its relay', '/mcp/acme/tools/sse', ''],
  ['the endpoint with all tools', '/v1/mcp?toolsets=execute', 'acme_tools__'],
] as const

type CallTool = (name: string, given: object, onprogress?: () => void) => Promise<unknown>

/** Lists, calls a tool, and receives progress while another one runs. */
async function use(prefix: string, names: readonly string[], call: CallTool): Promise<void> {
  expect(names).toContain(`${prefix}echo`)
  expect(JSON.stringify(await call(`${prefix}echo`, { text: 'called' }))).toContain('called')
  let steps = 0
  const result = await call(`${prefix}steps`, { text: 'stepped' }, () => steps++)
  expect([JSON.stringify(result).includes('stepped'), steps]).toEqual([true, 1])
}

for (const [place, path, prefix] of places) {
  describe(`through ${place}`, () => {
    const url = () => new URL(front.url + path)

    it.each([{ pin: '2026-07-28' }, 'auto', 'legacy'] as const)(
      'the official client 2 works in mode %o',
      async (mode) => {
        const client = new Client({ name: 'v2', version: '1' }, { versionNegotiation: { mode } })
        await client.connect(new StreamableHTTPClientTransport(url(), { requestInit: { headers } }))
        const names = (await client.listTools()).tools.map(({ name }) => name)
        await use(prefix, names, (name, given, onprogress) =>
          client.callTool({ name, arguments: { ...given } }, onprogress && { onprogress }),
        )
        await client.close()
      },
    )

    it('the official client 1 works', async () => {
      const client = new ClientV1({ name: 'v1', version: '1' })
      await client.connect(new HttpV1(url(), { requestInit: { headers } }) as Transport)
      const names = (await client.listTools()).tools.map(({ name }) => name)
      await use(prefix, names, (name, given, onprogress) =>
        client.callTool({ name, arguments: { ...given } }, undefined, onprogress && { onprogress }),
      )
      await client.close()
    })

    it('the AI SDK lists and calls', async () => {
      const client = await createMCPClient({ transport: { type: 'http', url: url().href, headers } })
      const tool = (await client.tools())[`${prefix}echo`]
      const result = await tool?.execute({ text: 'called' }, { toolCallId: '1', messages: [], context: {} })
      expect(JSON.stringify(result)).toContain('called')
      await client.close()
    })

    it('LangChain lists and calls', async () => {
      const server = { transport: 'http', url: url().href, headers } as const
      const client = new MultiServerMCPClient({ mcpServers: { gateway: server } })
      const tool = (await client.getTools()).find(({ name }) => name === `${prefix}echo`)
      expect(JSON.stringify(await tool?.invoke({ text: 'called' }))).toContain('called')
      await client.close()
    })

    it.each(['modern', 'legacy'])(
      'the Inspector lists and calls (%s)',
      async (era) => {
        const header = `Authorization: ${headers.authorization}`
        const words = ['--cli', url().href, '--transport', 'http', '--protocol-era', era, '--format', 'json']
        const inspect = (...more: string[]) => run(bin('mcp-inspector'), ...words, '--header', header, ...more)
        expect(await inspect('--method', 'tools/list')).toContain(`${prefix}echo`)
        const call = ['--method', 'tools/call', '--tool-name', `${prefix}echo`, '--tool-arg', 'text=called']
        expect(await inspect(...call)).toContain('called')
      },
      60_000,
    )

    it('mcporter lists and calls', async () => {
      const config = join(directory, `mcporter-${prefix}.json`)
      const gateway = { baseUrl: url().href, headers }
      await writeFile(config, JSON.stringify({ mcpServers: { gateway }, imports: [] }))
      expect(await run(bin('mcporter'), '--config', config, 'list', 'gateway', '--schema')).toContain(`${prefix}echo`)
      const called = await run(bin('mcporter'), '--config', config, 'call', `gateway.${prefix}echo`, 'text=called')
      expect(called).toContain('called')
    }, 60_000)
  })
}

describe('through the relay, the official client of the older transport', () => {
  it('works with the same address', async () => {
    const client = new ClientV1({ name: 'sse', version: '1' })
    await client.connect(new SSEClientTransport(new URL(`${front.url}/acme/tools/sse`), { requestInit: { headers } }))
    const names = (await client.listTools()).tools.map(({ name }) => name)
    await use('', names, (name, given, onprogress) =>
      client.callTool({ name, arguments: { ...given } }, undefined, onprogress && { onprogress }),
    )
    await client.close()
  })
})

/** Runs a client program with an empty home directory. @returns what it printed. */
async function run(program: string, ...words: readonly string[]): Promise<string> {
  const env = { PATH: process.env.PATH, HOME: directory, NO_COLOR: '1' }
  const child = spawn(process.execPath, [program, ...words], { env, cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] })
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)])
  return out + err
}
