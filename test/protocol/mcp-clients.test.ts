import { spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createMCPClient } from '@ai-sdk/mcp'
import { MultiServerMCPClient } from '@langchain/mcp-adapters'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport as StdioV1 } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport as HttpV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { type Front, openFront } from '../support/front.ts'

const root = join(import.meta.dirname, '../..')
const bin = (name: string) => join(root, 'node_modules/.bin', name)
const code = 'print(6 * 7)'

let front: Front
let directory: string
let url: string
beforeAll(async () => {
  front = await openFront()
  url = `${front.url}/mcp`
  directory = await mkdtemp(join(tmpdir(), 'glovebox-clients-'))
})
afterAll(async () => {
  await front.close()
  await rm(directory, { recursive: true })
})

/** Our own command line, serving on standard input and output. */
const stdioServer = () => ({
  command: process.execPath,
  args: [join(root, 'src/main.ts'), 'stdio', '--url', front.url],
})

/** Runs a client program. Its home directory is empty, so that the configuration of the user has no effect. */
function run(program: string, ...words: readonly string[]): Promise<{ code: number | null; out: string; err: string }> {
  return new Promise((resolve, reject) => {
    const env = { PATH: process.env.PATH, HOME: directory, NO_COLOR: '1' }
    const child = spawn(process.execPath, [program, ...words], {
      env,
      cwd: directory,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let [out, err] = ['', '']
    child.stdout.on('data', (bytes: Buffer) => {
      out += bytes.toString()
    })
    child.stderr.on('data', (bytes: Buffer) => {
      err += bytes.toString()
    })
    child.on('error', reject)
    child.on('close', (exitCode) => resolve({ code: exitCode, out, err }))
  })
}

const endings = async (count: number) => {
  const runs = [...front.runner.specs.keys()].slice(-count)
  return Promise.all(runs.map(async (runId) => (await front.store.runs.get(runId))?.ending?.kind))
}

describe('the official client, version 2', () => {
  for (const [how, mode] of [
    ['the stateless era', { pin: '2026-07-28' }],
    ['whichever era it finds', 'auto'],
    ['the era before', 'legacy'],
  ] as const) {
    it(`lists, executes, streams and cancels with ${how}`, async () => {
      const client = new Client({ name: 'v2', version: '1' }, { versionNegotiation: { mode } })
      await client.connect(new StreamableHTTPClientTransport(new URL(url)))
      expect((await client.listTools()).tools.map(({ name }) => name)).toContain('sandbox_execute')
      const result = await client.callTool({ name: 'sandbox_execute', arguments: { code } })
      expect(result.structuredContent).toMatchObject({ stdout: '42\n', exit_code: 0 })
      await followAndCancel((args, options) => client.callTool({ name: 'sandbox_execute', arguments: args }, options))
      await client.close()
    })
  }

  it('reads resources', async () => {
    const client = new Client({ name: 'v2', version: '1' }, { versionNegotiation: { mode: 'auto' } })
    await client.connect(new StreamableHTTPClientTransport(new URL(url)))
    const { contents } = await client.readResource({ uri: 'glovebox://limits' })
    expect(contents).toMatchObject([{ mimeType: 'application/json' }])
    await client.close()
  })

  for (const mode of ['auto', 'legacy'] as const) {
    it(`supports the same over standard input and output (${mode})`, async () => {
      const client = new Client({ name: 'v2', version: '1' }, { versionNegotiation: { mode } })
      await client.connect(new StdioClientTransport(stdioServer()))
      const result = await client.callTool({ name: 'sandbox_execute', arguments: { code } })
      expect(result.structuredContent).toMatchObject({ stdout: '42\n' })
      await followAndCancel((args, options) => client.callTool({ name: 'sandbox_execute', arguments: args }, options))
      await client.close()
    }, 30_000)
  }
})

describe('the official client, version 1', () => {
  for (const [how, transport] of [
    ['HTTP', () => new HttpV1(new URL(url)) as Transport],
    ['standard input and output', () => new StdioV1(stdioServer())],
  ] as const) {
    it(`lists, executes, streams and cancels over ${how}`, async () => {
      const client = new ClientV1({ name: 'v1', version: '1' })
      await client.connect(transport())
      expect((await client.listTools()).tools).toHaveLength(4)
      const result = await client.callTool({ name: 'sandbox_execute', arguments: { code } })
      expect(result.structuredContent).toMatchObject({ stdout: '42\n' })
      await followAndCancel((args, options) =>
        client.callTool({ name: 'sandbox_execute', arguments: args }, undefined, options),
      )
      await client.close()
    }, 30_000)
  }
})

interface CallOptions {
  signal?: AbortSignal
  onprogress?: (progress: { progress: number; message?: string | undefined }) => void
}

/** Output arrives while the code runs, and an aborted call cancels its run. */
async function followAndCancel(call: (args: Record<string, unknown>, options: CallOptions) => Promise<unknown>) {
  const seen: string[] = []
  await call(
    // A pause at the end: some clients drop progress that arrives together with the result.
    { code: 'echo one; sleep 0.2; echo two; sleep 0.2', language: 'bash' },
    { onprogress: ({ message = '' }) => seen.push(message) },
  )
  expect(seen.join('')).toBe('one\ntwo\n')

  const before = front.runner.specs.size
  const stop = new AbortController()
  const call60 = call({ code: 'sleep 60', language: 'bash' }, { signal: stop.signal })
  const cancelled = call60.then(
    () => 'answered',
    () => 'cancelled',
  )
  await vi.waitFor(() => expect(front.runner.specs.size).toBe(before + 1), 10_000)
  stop.abort()
  expect(await cancelled).toBe('cancelled')
  await vi.waitFor(async () => expect(await endings(1)).toEqual(['cancelled']), 5_000)
}

describe('the AI SDK', () => {
  it('lists and executes', async () => {
    const client = await createMCPClient({ transport: { type: 'http', url } })
    const tools = await client.tools()
    const result = await tools.sandbox_execute?.execute({ code }, { toolCallId: '1', messages: [], context: {} })
    expect(JSON.stringify(result)).toContain('42')
    await client.close()
  })
})

describe('LangChain', () => {
  it('lists and executes', async () => {
    const client = new MultiServerMCPClient({ mcpServers: { glovebox: { transport: 'http', url } } })
    const [tool] = await client.getTools()
    expect(tool?.name).toBe('sandbox_execute')
    expect(JSON.stringify(await tool?.invoke({ code }))).toContain('42')
    await client.close()
  })
})

describe('mcp-remote', () => {
  it('connects a client that supports only standard input and output', async () => {
    const client = new ClientV1({ name: 'behind', version: '1' })
    const args = [bin('mcp-remote'), url, '--allow-http', '--transport', 'http-only']
    const env = { PATH: process.env.PATH ?? '', HOME: directory, MCP_REMOTE_CONFIG_DIR: directory }
    await client.connect(new StdioV1({ command: process.execPath, args, env, stderr: 'ignore' }))
    const result = await client.callTool({ name: 'sandbox_execute', arguments: { code } })
    expect(result.structuredContent).toMatchObject({ stdout: '42\n' })
    await client.close()
  }, 30_000)
})

describe('mcporter', () => {
  it('lists and executes', async () => {
    const config = join(directory, 'mcporter.json')
    await writeFile(config, JSON.stringify({ mcpServers: { glovebox: { baseUrl: url } }, imports: [] }))
    const listed = await run(bin('mcporter'), '--config', config, 'list', 'glovebox', '--schema')
    expect(listed.out).toContain('sandbox_execute')
    const called = await run(bin('mcporter'), '--config', config, 'call', 'glovebox.sandbox_execute', `code=${code}`)
    expect(called.out).toContain('42')
  }, 30_000)
})

describe('the Inspector', () => {
  for (const era of ['modern', 'legacy']) {
    it(`accepts the schemas as portable, and executes (${era})`, async () => {
      const words = ['--cli', url, '--transport', 'http', '--protocol-era', era, '--format', 'json']
      const listed = await run(bin('mcp-inspector'), ...words, '--method', 'tools/list', '--strict')
      expect([listed.code, listed.err]).toEqual([0, ''])
      const call = ['--method', 'tools/call', '--tool-name', 'sandbox_execute', '--tool-arg', `code=${code}`]
      const called = await run(bin('mcp-inspector'), ...words, ...call)
      expect(called.out).toContain('42')
    }, 30_000)
  }
})
