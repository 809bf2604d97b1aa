import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ActiveCalls } from '../../src/mcp/active-calls.ts'
import { ChangeFeed } from '../../src/mcp/change-feed.ts'
import { type HeaderOf, handle, type McpReply } from '../../src/mcp/handle.ts'
import { Sessions } from '../../src/mcp/legacy/sessions.ts'
import { LiveTasks } from '../../src/mcp/modern/live-tasks.ts'
import { Catalog, defaultToolsets } from '../../src/tools/catalog.ts'
import { type OpenCore, openCore } from '../support/front.ts'

let opened: OpenCore
beforeAll(async () => {
  opened = await openCore()
})
afterAll(async () => {
  await opened.close()
})

const accept = { both: 'application/json, text/event-stream', json: 'application/json' }

const never = new AbortController().signal

function call(code: string, reads: keyof typeof accept, streamAfterMs: number): Promise<McpReply> {
  const params = { name: 'sandbox_execute', arguments: { code, language: 'bash' } }
  const body = Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }))
  const changes = new ChangeFeed()
  const header: HeaderOf = (name) => (name === 'accept' ? accept[reads] : undefined)
  return handle(header, body, {
    core: opened.core,
    caller: opened.caller,
    offer: new Catalog().offer(opened.caller.profile, defaultToolsets(opened.caller.profile)),
    calls: new ActiveCalls(),
    sessions: new Sessions(),
    tasks: new LiveTasks(changes),
    changes,
    closing: never,
    disconnected: () => never,
    wantsSession: false,
    requireTool: () => {},
    serverVersion: '0',
    baseUrl: 'http://localhost',
    results: opened.caller.profile.calls,
    streamAfterMs,
    log: opened.log,
  })
}

describe('a long call', () => {
  it('becomes a stream that contains only the result, for a client that accepts event streams', async () => {
    const reply = await call('echo x; sleep 0.6; exit 4', 'both', 50)
    if (reply.kind !== 'stream') throw new Error(`answered as ${reply.kind}`)
    const messages: string[] = []
    for await (const message of reply.messages) messages.push(message)
    expect(messages.map((message) => JSON.parse(message).result.structuredContent.exit_code)).toEqual([4])
  })

  it('stays plain JSON for any other client', async () => {
    const reply = await call('sleep 0.2', 'json', 50)
    expect(reply).toMatchObject({ kind: 'json', status: 200 })
  })
})

describe('a short call', () => {
  it('is plain JSON for every client', async () => {
    expect(await call('true', 'both', 60_000)).toMatchObject({ kind: 'json', status: 200 })
  })
})
