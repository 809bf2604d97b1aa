import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Front, openFront } from '../support/front.ts'

let front: Front
let client: Client
const errors: Error[] = []
beforeAll(async () => {
  front = await openFront()
  client = new Client({ name: 'judge', version: '1.0.0' })
  client.onerror = (error) => errors.push(error)
  await client.connect(new StreamableHTTPClientTransport(new URL(`${front.url}/mcp`)) as Transport)
})
afterAll(async () => {
  await client.close()
  await front.close()
})

describe('the official client', () => {
  it('connects, negotiates the latest version and receives the server info', () => {
    expect(client.getServerVersion()).toMatchObject({ name: 'glovebox' })
    expect(client.getServerCapabilities()).toEqual({
      logging: {},
      tools: { listChanged: false },
      resources: { listChanged: false, subscribe: false },
    })
  })

  it('lists the tool and accepts its schemas', async () => {
    const { tools } = await client.listTools()
    expect(tools.map(({ name }) => name)).toContain('sandbox_execute')
    expect(tools[0]?.outputSchema).toBeDefined()
  })

  it('runs each language and validates the structured result', async () => {
    const cases = {
      python: 'print(6 * 7)',
      node: 'console.log(6 * 7)',
      typescript: 'console.log((6 * 7) as number)',
      bash: 'echo $((6 * 7))',
    }
    for (const [language, code] of Object.entries(cases)) {
      const result = await client.callTool({ name: 'sandbox_execute', arguments: { code, language } })
      expect(result.structuredContent).toMatchObject({ stdout: '42\n', exit_code: 0 })
    }
  })

  it('accepts a failed run as a result and invalid arguments as one that a model can correct', async () => {
    const failed = await client.callTool({ name: 'sandbox_execute', arguments: { code: 'exit 2', language: 'bash' } })
    expect(failed).toMatchObject({ isError: true, structuredContent: { exit_code: 2 } })
    const wrong = await client.callTool({ name: 'sandbox_execute', arguments: { code: 1 } })
    expect(wrong).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('code must be a string') }],
    })
  })

  it('rejects an unknown tool and an unknown method', async () => {
    await expect(client.callTool({ name: 'nope' })).rejects.toMatchObject({ code: -32602 })
    await expect(client.listPrompts()).rejects.toThrow()
  })

  it('receives progress', async () => {
    const seen: string[] = []
    const result = await client.callTool(
      { name: 'sandbox_execute', arguments: { code: 'echo a; sleep 0.1; echo b', language: 'bash' } },
      undefined,
      { onprogress: ({ message }) => seen.push(message ?? '') },
    )
    expect(seen).toEqual(['a\n', 'b\n'])
    expect(result.structuredContent).toMatchObject({ stdout: 'a\nb\n' })
  })

  it('cancels a call', async () => {
    const stop = new AbortController()
    const cancelled = client.callTool(
      { name: 'sandbox_execute', arguments: { code: 'echo x; sleep 60', language: 'bash' } },
      undefined,
      { signal: stop.signal, onprogress: () => stop.abort() },
    )
    await expect(cancelled).rejects.toThrow()
    await expect.poll(async () => (await front.store.runs.unfinished()).length).toBe(0)
  })

  it('sends pings', async () => {
    expect(await client.ping()).toEqual({})
  })

  it('reports no errors', () => {
    expect(errors).toEqual([])
  })
})
