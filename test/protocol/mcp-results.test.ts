import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Front, openFront, testProfile } from '../support/front.ts'
import { askModern } from '../support/modern.ts'

let front: Front
beforeAll(async () => {
  front = await openFront({ ...testProfile, calls: { ...testProfile.calls, structuredResults: false } })
})
afterAll(() => front.close())

interface Result {
  content: { type: string; text?: string }[]
  structuredContent?: object
  isError: boolean
  _meta?: Record<string, Record<string, unknown>>
  tools?: { outputSchema?: object }[]
}

async function call(method: string, params: object, path = '/mcp'): Promise<Result> {
  const answer = await front.post(path, { jsonrpc: '2.0', id: 1, method, params })
  return ((await answer.json()) as { result: Result }).result
}
const run = (code: string, path?: string, args: object = {}) =>
  call('tools/call', { name: 'sandbox_execute', arguments: { code, language: 'bash', ...args } }, path)

describe('a result over MCP', () => {
  it('is text for the model, with the ending and the figures in _meta', async () => {
    const result = await run('echo 42')
    expect(result.structuredContent).toBeUndefined()
    expect(result.content).toEqual([{ type: 'text', text: expect.stringContaining('42\n') }])
    const figures = result._meta?.['glovebox/run'] ?? {}
    expect(figures).toMatchObject({
      status: 'success',
      ending: { kind: 'exited', code: 0 },
      duration_ms: expect.any(Number),
      trace_id: expect.stringMatching(/^trc_/),
    })
    expect(Object.values(figures)).not.toContain(null)
    for (const name of ['stdout', 'stderr', 'limits', 'oom_kills']) expect(figures).not.toHaveProperty(name)
    const modern = await askModern(
      front.url,
      'tools/call',
      {
        name: 'sandbox_execute',
        arguments: { code: 'echo 42', language: 'bash' },
      },
      { path: '/mcp' },
    )
    expect(modern.body.result).not.toHaveProperty('structuredContent')
    expect(modern.body.result).toMatchObject({ _meta: { 'glovebox/run': { status: 'success' } } })
  })

  it('has structuredContent, and its tools an outputSchema, where the URL requests it', async () => {
    const result = await run('echo 42', '/mcp?structured=true')
    expect(result).toMatchObject({ structuredContent: { stdout: '42\n', exit_code: 0 } })
    expect(result._meta).toBeUndefined()
    for (const name of ['limits', 'oom_kills', 'stderr_bytes', 'stdout_truncated'])
      expect(result.structuredContent).not.toHaveProperty(name)
    expect((await call('tools/list', {}, '/mcp?structured=true')).tools?.[0]).toHaveProperty('outputSchema')
    for (const { outputSchema } of (await call('tools/list', {})).tools ?? []) expect(outputSchema).toBeUndefined()
  })

  it('is an error for a failed program, unless the URL says that only ended runs are', async () => {
    expect((await run('exit 3')).isError).toBe(true)
    expect(await run('exit 3', '/mcp?errors=endings')).toMatchObject({
      isError: false,
      content: [{ text: expect.stringContaining('**Exit code:** 3') }],
    })
    expect((await run('sleep 9', '/mcp?errors=endings', { timeout: 1 })).isError).toBe(true)
  })

  it('has at most the output that the profile allows, and names the call that returns the rest', async () => {
    const calls = { ...testProfile.calls, structuredResults: false, mcpOutputCharacters: 1_000 }
    const small = await openFront({ ...testProfile, calls })
    try {
      const ask = async (name: string, args: object) => {
        const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } }
        return ((await (await small.post('/mcp', message)).json()) as { result: Result }).result.content[0]?.text ?? ''
      }
      const text = await ask('sandbox_execute', { code: 'seq 1 2000; echo no >&2', language: 'bash' })
      expect(text).toMatch(/\*\*stdout:\*\*\n```\n1\n2\n[\s\S]*\n\[… \d+ bytes left out …\]\n[\s\S]*\n1999\n2000\n```/)
      expect(text).toContain('no\n')
      expect(text.length).toBeLessThan(1_400)
      const [, trace_id, cursor] = /execution_get with trace_id "(\S+)" and cursor "(\S+)" returns the rest/.exec(text)!
      const shownLast = Number(/(\d+)\n\n\[…/.exec(text)?.[1])
      const rest = await ask('execution_get', { trace_id, cursor })
      const all = Array.from({ length: 2000 - shownLast }, (_, n) => `${shownLast + 1 + n}\n`).join('')
      expect(rest).toContain(`\`\`\`\n${all}\`\`\``)
      expect(await ask('execution_get', { trace_id })).toContain('\n1000\n')
      const rest200 = await small.post('/v1/sandbox/execute', { code: 'seq 1 2000', language: 'bash' })
      expect(((await rest200.json()) as { stdout: string }).stdout).toContain('\n1000\n')
    } finally {
      await small.close()
    }
  })

  it('refuses values of these parameters that do not exist', async () => {
    for (const query of ['structured=yes', 'busy=never', 'errors=', 'structured=true&structured=true'])
      expect([query, (await front.post(`/mcp?${query}`, { jsonrpc: '2.0', id: 1, method: 'ping' })).status]).toEqual([
        query,
        400,
      ])
  })
})
