import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Glovebox, Place, until } from '../support/glovebox.ts'
import { slotsOf } from '../support/machine.ts'

const place = new Place()
const client = new Client({ name: 'story', version: '1.0.0' })
let server: Glovebox
beforeAll(async () => {
  server = await place.start('--no-prewarm-jails', '--no-prewarm-jails')
  await client.connect(new StreamableHTTPClientTransport(new URL(`${server.url}/mcp`)))
})
afterAll(async () => {
  await client.close()
  await place.remove()
  expect(server.warnings).toEqual([])
})

const call = (args: Record<string, unknown>, options = {}) =>
  client.callTool({ name: 'sandbox_execute', arguments: args }, undefined, options)

describe('the official MCP client', () => {
  it('receives the server info and the tool list', async () => {
    expect(client.getServerVersion()).toMatchObject({ name: 'glovebox', title: 'Glovebox' })
    expect(client.getInstructions()).toMatch(/sandbox_execute/)
    await client.ping()
    const { tools } = await client.listTools()
    const tool = tools.find(({ name }) => name === 'sandbox_execute')
    expect(tool?.description).toMatch(/no network/)
    expect(tool?.inputSchema).toMatchObject({ required: ['code'], properties: { timeout: { maximum: 3600 } } })
  })

  it('runs code in each language, and accepts the structured results', async () => {
    for (const [language, code] of [
      ['python', 'print(6 * 7)'],
      ['node', 'console.log(6 * 7)'],
      ['bash', 'echo $((6 * 7))'],
    ]) {
      const result = await call({ language, code })
      expect(result).toMatchObject({ isError: false, structuredContent: { stdout: '42\n', exit_code: 0 } })
    }
  })

  it('receives a failure as a tool error', async () => {
    const result = await call({ code: 'import sys\nprint("why", file=sys.stderr)\nsys.exit(3)' })
    expect(result).toMatchObject({ isError: true, structuredContent: { exit_code: 3, stderr: 'why\n' } })
  })

  it('receives output as progress while the program runs', async () => {
    const heard: string[] = []
    const code = 'import time\nfor i in range(5):\n    print("step", i)\n    time.sleep(0.3)'
    const onprogress = ({ message = '' }) => heard.push(message)
    const result = await call({ code }, { onprogress })
    expect(heard.length).toBeGreaterThan(2)
    expect(heard.join('')).toBe('step 0\nstep 1\nstep 2\nstep 3\nstep 4\n')
    expect(result.structuredContent).toMatchObject({ stdout: heard.join('') })
  })

  it('cancels a run by aborting its call', async () => {
    const giveUp = new AbortController()
    const call = client.callTool(
      { name: 'sandbox_execute', arguments: { code: 'echo on; sleep 60', language: 'bash' } },
      undefined,
      { signal: giveUp.signal, onprogress: () => giveUp.abort('enough') },
    )
    await expect(call).rejects.toThrow(/enough/)
    await until(() => slotsOf(place).every(({ runPids }) => runPids.length === 0), 'no process of it is left')
    await until(() => place.runs().at(-1)?.finished_at !== null, 'it has its ending')
    expect(place.runs().at(-1)?.ending).toBe('{"kind":"cancelled"}')
  })

  it('handles many parallel calls, each with its own result', async () => {
    const codes = Array.from({ length: 12 }, (_, index) => `sleep 0.2; echo ${index}`)
    const results = await Promise.all(codes.map((code) => call({ code, language: 'bash' })))
    expect(results.map(({ structuredContent }) => (structuredContent as { stdout: string }).stdout)).toEqual(
      codes.map((_, index) => `${index}\n`),
    )
  })
})
