import { describe, expect, it } from 'vitest'
import { type Answer, callTool, execute, executeBody, post, type RpcAnswer } from '../support/calls.ts'
import { rawRequest, sendRaw, statusOf } from '../support/raw-http.ts'
import { openStory } from '../support/story.ts'

const story = openStory(['--timeout-max-s', '60', '--languages', 'python,bash'], { expectNoWarnings: true })

interface ErrorBody {
  error: string
  message: string
  hint: string
}

const code = 'print(1)'
const tooLong = 'x'.repeat(1024 * 1024 + 1)

/** Rejected arguments, and the text that explains the error to the caller. */
const refusedArguments: [what: string, args: object, said: RegExp][] = [
  ['no code', {}, /code is required and missing/],
  ['empty code', { code: '' }, /code must be between 1 and 1048576 bytes/],
  ['code that is no text', { code: 42 }, /code must be (a )?string/],
  ['too much code', { code: tooLong }, /code is 1048577 bytes; the maximum is 1048576/],
  ['code with half a character', { code: 'a\ud800' }, /code holds a lone surrogate/],
  ['a language that is none', { code, language: 'cobol' }, /language.*python.*bash/],
  ['a language that is not offered', { code, language: 'node' }, /language.*(python, bash|python.*bash)/i],
  ['a timeout beyond the maximum', { code, timeout: 61 }, /timeout is 61 s; the maximum in this profile is 60 s/],
  ['a timeout of zero', { code, timeout: 0 }, /timeout must be/],
  ['a timeout below zero', { code, timeout: -1 }, /timeout must be/],
  ['a timeout in pieces of a second', { code, timeout: 1.5 }, /timeout must be/],
  ['a timeout in words', { code, timeout: 'soon' }, /timeout must be/],
  ['a misspelled argument', { code, threadId: 't' }, /"threadId" is not a known field; did you mean thread_id/],
  ['variables that are a list', { code, env_vars: ['A=1'] }, /env_vars must be (an )?object/],
  ['a variable that is a number', { code, env_vars: { A: 1 } }, /env_vars.*A.* must be (a )?string/],
  ['a variable in small letters', { code, env_vars: { path: 'x' } }, /env_vars\["path"\] is not a valid name/],
  ['a variable that is reserved', { code, env_vars: { LD_PRELOAD: 'x' } }, /env_vars\["LD_PRELOAD"\] is reserved/],
  ['a variable with NUL', { code, env_vars: { A: 'x\0y' } }, /env_vars.A holds a NUL/],
  ['a variable that is too large', { code, env_vars: { A: 'x'.repeat(32_769) } }, /env_vars.A is 32769 bytes/],
  [
    'too many variables',
    { code, env_vars: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`V${i}`, ''])) },
    /65 variables; the maximum is 64/,
  ],
  ['metadata that is a list', { code, metadata: [] }, /metadata must be (an )?object/],
  [
    'too much metadata',
    { code, metadata: { a: 'x'.repeat(16_384) } },
    /metadata is \d+ bytes as JSON; the maximum is 16384/,
  ],
  [
    'too much input',
    { code, stdin: 'x'.repeat(2 * 1024 * 1024 + 1) },
    /stdin is 2097153 bytes; the maximum is 2097152/,
  ],
]

describe('invalid arguments', () => {
  it.each(refusedArguments)('are rejected over REST: %s', async (_what, args, said) => {
    const answer = await post<ErrorBody>(`${story.url}/v1/sandbox/execute`, args)
    expect(answer.status).toBe(400)
    expect(answer.body).toMatchObject({ error: 'validation_error', hint: expect.stringMatching(/./) })
    expect(answer.body.message).toMatch(said)
  })

  it.each(refusedArguments)('are rejected over MCP, as a protocol error: %s', async (_what, args, said) => {
    const answer = await callTool(story.url, args, { 'mcp-protocol-version': '2025-06-18' })
    expect(answer.status).toBe(200)
    expect(answer.body).toMatchObject({ id: 1, error: { code: -32602, data: { error: 'validation_error' } } })
    expect(answer.body.error?.message).toMatch(said)
  })

  it.each(refusedArguments)(
    'are rejected over MCP since 2025-11-25, as a result that a model sees: %s',
    async (_what, args, said) => {
      const answer = await callTool(story.url, args, { 'mcp-protocol-version': '2025-11-25' })
      expect(answer.status).toBe(200)
      expect(answer.body.result?.isError).toBe(true)
      expect(answer.body.result?.content[0]?.text).toMatch(said)
    },
  )

  it('leave no row and no run behind', () => {
    expect(story.place.runs()).toEqual([])
  })
})

describe('an unreadable body', () => {
  const bodies: [what: string, body: string | Uint8Array, said: RegExp][] = [
    ['nothing', '', /empty/],
    ['no JSON', '{"code": ', /not valid JSON/],
    ['text after JSON', '{} {}', /not valid JSON/],
    ['no UTF-8', Buffer.from([0x22, 0xff, 0x22]), /not UTF-8/],
    ['a million brackets', '['.repeat(1_000_000), /nested deeper than/],
    ['too many values', `[${'0,'.repeat(200_000)}0]`, /holds more than/],
  ]
  it.each(bodies)('is rejected over REST and MCP: %s', async (_what, body, said) => {
    for (const path of ['/v1/sandbox/execute', '/mcp']) {
      const response = await fetch(story.url + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      })
      expect(response.status).toBe(400)
      expect(await response.text()).toMatch(said)
    }
  })

  it('is rejected when it is too large', async () => {
    for (const path of ['/v1/sandbox/execute', '/mcp']) {
      const response = await fetch(story.url + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: ' '.repeat(4 * 1024 * 1024 + 1),
      })
      expect(response.status).toBe(413)
    }
  })

  it('is not confused with a readable one: a megabyte of code whose every character is escaped', async () => {
    const escaped = `{"language":"bash","code":"echo \\u0023${'\\u0078'.repeat(600_000)}"}`
    const answer = await post(`${story.url}/v1/sandbox/execute`, escaped)
    expect(answer.status).toBe(200)
  })
})

describe('messages that are not MCP', () => {
  const mcp = (body: unknown, headers: object = {}): Promise<Answer<RpcAnswer>> =>
    post(`${story.url}/mcp`, body, headers)

  it.each([
    ['a number', 1],
    ['null', null],
    ['an object without a version', { id: 1, method: 'ping' }],
    ['an object with another version', { jsonrpc: '1.0', id: 1, method: 'ping' }],
    ['a method that is a number', { jsonrpc: '2.0', id: 1, method: 5 }],
    ['an id that is an object', { jsonrpc: '2.0', id: {}, method: 'ping' }],
    ['parameters that are a list', { jsonrpc: '2.0', id: 1, method: 'ping', params: [] }],
    ['an empty batch', []],
  ])('are refused: %s', async (_what, body) => {
    const answer = await mcp(body)
    expect(answer.body.error?.code).toBe(-32600)
    expect(answer.status).toBe(400)
  })

  it('for unknown methods and tools are rejected with an explanation', async () => {
    expect((await mcp({ jsonrpc: '2.0', id: 'a', method: 'no/such' })).body).toMatchObject({
      id: 'a',
      error: { code: -32601 },
    })
    const unknownTool = { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'rm', arguments: {} } }
    expect((await mcp(unknownTool)).body).toMatchObject({
      id: 2,
      error: { code: -32602, message: expect.stringMatching(/Unknown tool: rm/) },
    })
    for (const name of ['__proto__', 'constructor', '', null, 7]) {
      const { body } = await mcp({ jsonrpc: '2.0', id: 3, method: 'tools/call', params: { name } })
      expect(body.error?.code).toBe(-32602)
    }
  })

  it('for an unknown version are rejected', async () => {
    expect(
      (await mcp({ jsonrpc: '2.0', id: 1, method: 'ping' }, { 'mcp-protocol-version': '1999-01-01' })).status,
    ).toBe(400)
  })

  it('without an id are accepted', async () => {
    expect((await mcp({ jsonrpc: '2.0', method: 'notifications/initialized' })).status).toBe(202)
    expect((await mcp({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 99 } })).status).toBe(
      202,
    )
    expect((await mcp({ jsonrpc: '2.0', id: 1, result: {} })).status).toBe(202)
  })

  it('do not pollute prototypes', async () => {
    const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sandbox_execute","arguments":{"code":"print(1)","__proto__":{"language":"bash"}}}}`
    const { content } = (await mcp(body)).body.result as { content: { text: string }[] }
    expect(content.at(-1)?.text).toContain('Ignored unknown arguments: "__proto__".')
    expect(content[0]?.text).toContain('1\n')
    expect((await callTool(story.url, { code })).body.result?.structuredContent.stdout).toBe('1\n')
  })
})

describe('a request that a web page could send', () => {
  const body = JSON.stringify(executeBody(1, { code }))
  const send = (path: string, headers: Record<string, string>, method = 'POST') =>
    sendRaw(
      story.server.port,
      rawRequest(
        method,
        path,
        { host: `127.0.0.1:${story.server.port}`, 'content-type': 'application/json', ...headers },
        method === 'POST' ? body : '',
      ),
    )

  it.each([
    ['a name that was made to point here', { host: 'evil.example' }, 403],
    ['such a name with our port', { host: 'evil.example:5555' }, 403],
    ['no name', { host: '' }, 403],
    ['an origin', { origin: 'https://evil.example' }, 403],
    ['an origin that is hidden', { origin: 'null' }, 403],
    ['a fetch from another site', { 'sec-fetch-site': 'cross-site' }, 403],
    ['a fetch from a neighbour', { 'sec-fetch-site': 'same-site' }, 403],
    ['the type of a form', { 'content-type': 'application/x-www-form-urlencoded' }, 415],
    ['the type of plain text', { 'content-type': 'text/plain' }, 415],
    ['no type', { 'content-type': '' }, 415],
  ])('is refused at every door: %s', async (_what, headers, status) => {
    for (const path of ['/mcp', '/v1/sandbox/execute', '/v1/executions/trc_x/cancel']) {
      expect(statusOf(await send(path, headers))).toBe(status)
    }
    if (status === 403)
      for (const path of ['/healthz', '/readyz', '/mcp', '/nothing'])
        expect(statusOf(await send(path, headers, 'GET'))).toBe(403)
  })

  it('never executes code', async () => {
    const before = story.place.runs().length
    for (const headers of [{ host: 'evil.example' }, { origin: 'null' }, { 'content-type': 'text/plain' }]) {
      await send('/mcp', headers)
    }
    expect(story.place.runs()).toHaveLength(before)
  })

  it('is accepted from a client that is not a browser', async () => {
    expect(statusOf(await send('/mcp', {}))).toBe(200)
    expect(statusOf(await send('/mcp', { 'sec-fetch-site': 'none' }))).toBe(200)
  })
})

describe('a malformed HTTP request', () => {
  it.each([
    ['noise', Buffer.from([0, 1, 2, 3, 13, 10, 13, 10])],
    ['a TLS greeting', Buffer.from('16030100a5010000a10303', 'hex')],
    ['two lengths', 'POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}'],
    [
      'a length and pieces',
      'POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    ],
    ['headers without end', `GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ${'x'.repeat(100_000)}\r\n\r\n`],
    [
      'an address of elsewhere',
      'GET http://evil.example/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n',
    ],
  ])('is refused: %s', async (_what, request) => {
    const status = statusOf(await sendRaw(story.server.port, request))
    expect(status === 0 || (status >= 400 && status < 500)).toBe(true)
  })

  it('with the wrong method is rejected with the allowed ones', async () => {
    for (const [path, allowed] of [
      ['/mcp', 'POST'],
      ['/v1/sandbox/execute', 'POST'],
      ['/healthz', 'GET'],
    ] as const) {
      const response = await fetch(story.url + path, { method: 'PUT' })
      expect(response.status).toBe(405)
      expect(response.headers.get('allow')).toContain(allowed)
    }
    expect((await fetch(`${story.url}/nothing/here`)).status).toBe(404)
  })

  it('leaves the server working', async () => {
    expect(await execute(story.url, 'python', 'print("well")')).toMatchObject({ stdout: 'well\n' })
    expect(story.server.log.filter(({ msg }) => msg === 'process died; restarting it')).toEqual([])
  })
})
