import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { describe, expect, it } from 'vitest'
import { install, installWithinMs, isAvailable, type Packages } from '../support/installed-packages.ts'
import { openStory } from '../support/story.ts'

const story = openStory()

async function rpc(body: unknown, query = ''): Promise<{ status: number; body: ReturnType<typeof JSON.parse> }> {
  const response = await fetch(`${story.url}/api/v1/rpc${query}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  const text = await response.text()
  return { status: response.status, body: text === '' ? null : JSON.parse(text) }
}

const call = async (method: string, params: object) =>
  rpc({ jsonrpc: '2.0', method, params: { namespace: 'default', ...params }, id: '1' })

describe('the requests of the documentation of microsandbox', () => {
  it('initialize is answered as it is printed there', async () => {
    const params = {
      ...{ protocolVersion: '2024-11-05', capabilities: {} },
      clientInfo: { name: 'claude-desktop', version: '0.7.1' },
    }
    expect(await rpc({ jsonrpc: '2.0', method: 'initialize', params, id: 1 })).toEqual({
      status: 200,
      body: {
        jsonrpc: '2.0',
        result: {
          protocolVersion: '2024-11-05',
          capabilities: { tools: {}, prompts: {} },
          serverInfo: { name: 'microsandbox', version: '1.0.0' },
        },
        id: 1,
      },
    })
  })

  it('tools/list has the five tools', async () => {
    const { result, id } = (await rpc({ jsonrpc: '2.0', method: 'tools/list', id: 2 })).body
    expect(id).toBe(2)
    expect(result.tools.map(({ name }: { name: string }) => name)).toEqual([
      ...['sandbox_start', 'sandbox_stop', 'sandbox_run_code', 'sandbox_run_command', 'sandbox_get_metrics'],
    ])
    expect(result.tools[0]).toMatchObject({
      description: 'Start a new sandbox',
      inputSchema: { type: 'object', properties: { name: { type: 'string' }, namespace: { type: 'string' } } },
    })
  })

  it('tools/call runs code and is answered as it is printed there', async () => {
    await call('sandbox.start', {
      sandbox: 'my-python-env',
      config: { image: 'microsandbox/python', memory: 512, cpus: 1 },
    })
    const params = {
      name: 'sandbox_run_code',
      arguments: {
        ...{ sandbox: 'my-python-env', namespace: 'default', language: 'python' },
        code: "print('Hello from MCP!')",
      },
    }
    expect(await rpc({ jsonrpc: '2.0', method: 'tools/call', params, id: 3 })).toEqual({
      status: 200,
      body: { jsonrpc: '2.0', result: { content: [{ type: 'text', text: 'Hello from MCP!\n' }] }, id: 3 },
    })
    const { result } = (await rpc({ jsonrpc: '2.0', method: 'tools/call', params, id: 4 }, '?results=json')).body
    expect(JSON.parse(result.content[0].text)).toEqual({
      ...{ status: 'success', language: 'python', output: [{ stream: 'stdout', text: 'Hello from MCP!' }] },
    })
  })
})

describe('the JSON-RPC of microsandbox', () => {
  const sandbox = 'classic'

  it('starts, keeps state between two runs, executes a command, measures and stops', async () => {
    const config = { image: 'microsandbox/python', memory: 512, cpus: 1, envs: ['COLOR=blue'], volumes: null }
    expect((await call('sandbox.start', { sandbox, config })).body.result).toBe('Sandbox classic started successfully')
    const run = async (code: string, language = 'python') =>
      (await call('sandbox.repl.run', { sandbox, code, language })).body.result
    await run('x = 41')
    expect(await run('print(x + 1)')).toEqual({
      ...{ status: 'success', language: 'python', output: [{ stream: 'stdout', text: '42' }] },
    })
    expect((await run('1 / 0')).status).toBe('error')
    expect((await call('sandbox.command.run', { sandbox, command: 'printenv', args: ['COLOR'] })).body.result).toEqual({
      ...{ command: 'printenv', args: ['COLOR'], exit_code: 0, success: true },
      output: [{ stream: 'stdout', text: 'blue' }],
    })
    const [metrics] = (await call('sandbox.metrics.get', { sandbox })).body.result.sandboxes
    expect(metrics).toMatchObject({ namespace: 'default', name: sandbox, running: true })
    expect((await call('sandbox.stop', { sandbox })).body.result).toBe('Sandbox classic stopped successfully')
  })

  it('publishes the ports of a configuration at preview addresses, by both methods', async () => {
    const config = { ports: ['8080:8000', '9000'] }
    await call('sandbox.start', { sandbox: 'served', config })
    const argument = { sandbox: 'served', namespace: 'default', config: { ports: ['1:7000'] } }
    await rpc({ jsonrpc: '2.0', method: 'tools/call', params: { name: 'sandbox_start', arguments: argument }, id: 5 })
    const listed = await fetch(`${story.url}/v1/sandboxes/served/ports`)
    const { data } = (await listed.json()) as { data: object[] }
    expect(data).toMatchObject([7000, 8000, 9000].map((port) => ({ port, access: 'key', url: expect.any(String) })))
    for (const ports of [['x'], ['0'], ['8000:70000'], 'text', [{}]])
      expect(await call('sandbox.start', { sandbox: 'served', config: { ports } })).toMatchObject({ status: 400 })
    await call('sandbox.stop', { sandbox: 'served' })
  })

  it('answers wrong input as microsandbox does', async () => {
    expect(await rpc({ jsonrpc: '1.0', method: 'sandbox.stop', id: 1 })).toMatchObject({
      status: 400,
      body: { error: { code: -32600 } },
    })
    expect(await call('sandbox.nothing', {})).toMatchObject({ status: 404, body: { error: { code: -32601 } } })
    expect(await call('sandbox.stop', { sandbox: 'unknown' })).toMatchObject({ status: 404, body: { code: 4001 } })
    expect(await call('sandbox.start', { sandbox: 'a/b' })).toMatchObject({ status: 400, body: { code: 2001 } })
    expect(await call('sandbox.stop', { sandbox: 7 })).toMatchObject({ status: 400, body: { code: 2001 } })
    const tool = await rpc({ jsonrpc: '2.0', method: 'tools/call', params: { name: 'none', arguments: {} }, id: 1 })
    expect(tool).toMatchObject({ status: 200, body: { error: { code: -32603 } } })
    const shell = { name: 'sandbox_run_command', arguments: { sandbox: 'my-python-env', command: 'ls | wc' } }
    const advice = (await rpc({ jsonrpc: '2.0', method: 'tools/call', params: shell, id: 1 })).body.result
    expect(advice.isError).toBe(true)
    expect(advice.content[0].text).toContain('bash')
  })

  it('is healthy without a key', async () => {
    expect(await (await fetch(`${story.url}/api/v1/health`)).json()).toEqual({ message: 'Service is healthy' })
  })
})

describe('the official MCP client', () => {
  it('uses the tools and prompts of this path', async () => {
    const client = new Client({ name: 'test', version: '1' })
    await client.connect(new StreamableHTTPClientTransport(new URL(`${story.url}/api/v1/rpc`)) as never)
    expect(client.getServerVersion()).toEqual({ name: 'microsandbox', version: '1.0.0' })
    await client.callTool({ name: 'sandbox_start', arguments: { name: 'official', namespace: 'mine' } })
    const run = (code: string) =>
      client.callTool({
        name: 'sandbox_run_code',
        arguments: { sandbox: 'official', namespace: 'mine', code, language: 'nodejs' },
      })
    await run('const y = 20')
    expect((await run('console.log(y + 1)')).content).toEqual([{ type: 'text', text: '21\n' }])
    const { prompts } = await client.listPrompts()
    expect(prompts.map(({ name }) => name)).toEqual(['create_python_sandbox', 'create_node_sandbox'])
    const prompt = await client.getPrompt({ name: 'create_python_sandbox', arguments: { sandbox_name: 'p1' } })
    expect(JSON.stringify(prompt.messages)).toContain('p1')
    await client.callTool({ name: 'sandbox_stop', arguments: { sandbox: 'official', namespace: 'mine' } })
    await client.close()
  })
})

/** The last version on PyPI that talks to a server; later ones start virtual machines themselves, as all on npm do. */
const published: Packages = { from: 'PyPI', specs: ['microsandbox==0.1.8'] }
const canInstall = await isAvailable(published)

const program = `
import asyncio, sys
from microsandbox import NodeSandbox, PythonSandbox

async def main():
    async with PythonSandbox.create(server_url=sys.argv[1], name="published") as sandbox:
        await sandbox.run("x = 41")
        print(await (await sandbox.run("print(x + 1)")).output())
        command = await sandbox.command.run("echo", ["a b", "c"])
        print(await command.output(), command.exit_code)
        print(await sandbox.metrics.is_running(), await sandbox.metrics.memory() is not None)
    async with NodeSandbox.create(server_url=sys.argv[1], name="published-node") as sandbox:
        print(await (await sandbox.run("console.log(6 * 7)")).output())

asyncio.run(main())
`

describe.skipIf(!canInstall)('the published Python client', () => {
  it(
    'creates a sandbox, keeps state, runs a command, reads metrics and stops',
    async () => {
      const python = join(await install(published), 'bin/python')
      const { stdout } = await promisify(execFile)(python, ['-c', program, story.url])
      expect(stdout).toBe('42\na b c 0\nTrue True\n42\n')
    },
    installWithinMs,
  )
})
