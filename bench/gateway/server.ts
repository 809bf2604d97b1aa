/**
 * One server for the benchmark of the gateway, in its own process: `node bench/gateway/server.ts KIND [TARGET]` prints its
 * address, and the keys that it accepts.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import { answerOf, echoProgram } from './echo.ts'

export const kinds = ['upstream', 'bare relay', 'gateway'] as const
export type Kind = (typeof kinds)[number]

/** What a server prints when it listens. */
export interface Listening {
  /** Addresses that are measured; all lead to the same upstream. */
  urls: string[]
  keys: string[]
  /** Address that leads to the program `echo`; absent except for the gateway. */
  programUrl?: string
}

/** A key may have 64 calls of one upstream in progress, and an upstream 256: the idle streams need several of both. */
const several = 4

/** Answers every message with one event, and leaves the streams of GET requests open. */
const startUpstream = () =>
  serve(async (request, response) => {
    if (request.method === 'GET') {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(': open\n\n')
      return
    }
    if (request.method !== 'POST') {
      response.writeHead(405).end()
      return
    }
    const answer = answerOf(await text(request))
    if (answer === undefined) response.writeHead(202).end()
    else response.writeHead(200, { 'content-type': 'text/event-stream' }).end(`event: message\ndata: ${answer}\n\n`)
  })

/** What a relay costs at least: the body is passed on, and the response streamed back. */
async function startRelay(target: string): Promise<string> {
  const { Agent } = await import('undici')
  const { origin, pathname: path } = new URL(target)
  const agent = new Agent({ bodyTimeout: 0 })
  return serve(async (request, response) => {
    const isPost = request.method === 'POST'
    const relayed = await agent.request({
      ...{ origin, path, method: isPost ? 'POST' : 'GET', body: isPost ? request : null },
      headers: { 'content-type': 'application/json', accept: request.headers.accept ?? '*/*' },
    })
    response.writeHead(relayed.statusCode, { 'content-type': String(relayed.headers['content-type']) })
    await pipeline(relayed.body, response)
  })
}

/** Our own gateway, HTTP server, core and database. */
async function startGateway(target: string): Promise<Listening> {
  const [{ openFront }, { createUpstream }, { createKey }, { createOrg }, { operator }] = await Promise.all([
    import('../../test/support/front.ts'),
    import('../../src/core/admin/upstreams.ts'),
    import('../../src/core/admin/keys.ts'),
    import('../../src/core/admin/orgs.ts'),
    import('../../src/core/admin/admin.ts'),
  ])
  const front = await openFront(undefined, { dev: false })
  const { adminContext: context } = front.core
  // The level of a server, so that no request is logged.
  Object.assign(front.log, { level: 'info' })
  const { id: orgId } = await createOrg(context, operator, 'bench')
  const credential = { in: 'header', name: 'Authorization', prefix: 'Bearer ', values: ['secret'] } as const
  const listening: Listening = { urls: [], keys: [] }
  for (let index = 0; index < several; index++) {
    const name = `bench/n${index}`
    await createUpstream(context, operator, { orgId, name }, { url: target, credential })
    listening.urls.push(`${front.url}/${name}/sse`)
    listening.keys.push((await createKey(context, operator, orgId, {}, [])).secret)
  }
  const program = { command: process.execPath, args: ['--eval', echoProgram] }
  await createUpstream(context, operator, { orgId, name: 'bench/program' }, { program })
  listening.programUrl = `${front.url}/bench/program/sse`
  return listening
}

async function serve(reply: (request: IncomingMessage, response: ServerResponse) => Promise<void>): Promise<string> {
  const server = createServer((request, response) => {
    reply(request, response).catch(() => response.destroy())
  })
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`
}

async function start(kind: Kind, target: string): Promise<Listening> {
  switch (kind) {
    case 'upstream':
      return { urls: [await startUpstream()], keys: [] }
    case 'bare relay':
      return { urls: [await startRelay(target)], keys: [] }
    case 'gateway':
      return startGateway(target)
  }
}

if (import.meta.main) console.log(JSON.stringify(await start(process.argv[2] as Kind, process.argv[3] ?? '')))
