import type { ServerResponse } from 'node:http'
import type { FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify'
import { Refusal } from '../base/errors.ts'
import { escapeLineBreaks } from '../base/json.ts'
import type { Caller } from '../core/caller.ts'
import type { Gateway } from '../gateway/gateway.ts'
import { readsEvents, readsOnlyEvents } from '../mcp/accept.ts'
import { ActiveCalls } from '../mcp/active-calls.ts'
import type { ChangeFeed } from '../mcp/change-feed.ts'
import { isModernHeader } from '../mcp/era.ts'
import { type HeaderOf, handle, type McpContext, type McpReply, type McpState } from '../mcp/handle.ts'
import { errorReply } from '../mcp/json-rpc/encode.ts'
import { notificationStream } from '../mcp/legacy/notification-stream.ts'
import { Sessions } from '../mcp/legacy/sessions.ts'
import { LiveTasks } from '../mcp/modern/live-tasks.ts'
import { readResultOptions, resultParameters } from '../mcp/result-options.ts'
import { fault } from '../observe/log.ts'
import { type Catalog, chooseToolsets, type Offer, withContents, withTools } from '../tools/catalog.ts'
import { discoveryListings, discoveryTools } from '../tools/upstreams/discovery.ts'
import { upstreamContents } from '../tools/upstreams/upstream-contents.ts'
import { listingOf, namedTools, toTool, upstreamsOf } from '../tools/upstreams/upstream-tools.ts'
import { errorBody, sendJson, startWriting } from './answer.ts'
import { baseUrlOf } from './base-url.ts'
import type { Group, HttpDeps, Operation, QueryParameters } from './operation.ts'

/** A call that takes longer is answered as a stream: common clients and proxies wait one to five minutes for headers. */
const streamAfterMs = 10_000

/** Where the tools of upstreams are offered beside our own. */
const aggregatedPath = '/v1/mcp'

/** The handlers of `/mcp`, which share the state that the protocol keeps between requests. */
export interface McpEndpoint {
  post: RouteHandlerMethod
  get: RouteHandlerMethod
  delete: RouteHandlerMethod
}

/** @param closing aborts when this process is about to exit. */
export const mcpState = (changes: ChangeFeed, closing: AbortSignal): McpState => ({
  calls: new ActiveCalls(),
  sessions: new Sessions(),
  tasks: new LiveTasks(changes),
  changes,
  closing,
})

/** MCP over Streamable HTTP: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports */
export function mcpEndpoint(deps: HttpDeps, catalog: Catalog, state: McpState): McpEndpoint {
  return {
    post: async (request, reply) => {
      const context = await contextOf(request, reply, deps, catalog, state)
      const body = request.body as Buffer
      // A stream may stay open for hours; it must not keep the body of its request.
      request.body = undefined
      const header = headersOf(request)
      const answer = await handle(header, body, context)
      return send(reply, readsOnlyEvents(header) ? toEvents(reply, answer) : answer, context.log)
    },
    get: async (request, reply) => {
      const header = headersOf(request)
      refuseModern(request, header)
      if (!readsEvents(header)) throw new Refusal('not_acceptable', { wanted: 'text/event-stream' })
      const context = await contextOf(request, reply, deps, catalog, state)
      const sessionId = header('mcp-session-id')
      const session = sessionId === undefined ? undefined : state.sessions.find(request.caller.keyId, sessionId)
      return sendEvents(reply, notificationStream(session, context), context.log)
    },
    delete: async (request, reply) => {
      const header = headersOf(request)
      const sessionId = header('mcp-session-id')
      if (sessionId === undefined) throw new Refusal('method_not_allowed', { method: 'DELETE', allowed: 'GET, POST' })
      refuseModern(request, header)
      state.sessions.end(request.caller.keyId, sessionId)
      return reply.code(204).send()
    },
  }
}

/** Refuses GET and DELETE since 2026-07-28, which has POST only. */
function refuseModern({ method }: FastifyRequest, header: HeaderOf): void {
  if (isModernHeader(header('mcp-protocol-version'))) {
    throw new Refusal('method_not_allowed', { method, allowed: 'POST' })
  }
}

async function contextOf(
  request: FastifyRequest,
  reply: FastifyReply,
  { core, gateway, version, log, ...addressing }: HttpDeps,
  catalog: Catalog,
  state: McpState,
): Promise<McpContext> {
  const { caller } = request
  const wanted = queryOf(request, 'toolsets')
  const discovery = queryOf(request, 'discovery')
  const isAggregated = request.routeOptions.url === aggregatedPath
  const offerTo = async (to: Caller) => {
    const own = catalog.offer(to.profile, chooseToolsets(wanted, to.profile), await core.hiddenTools(to), to.tools)
    return isAggregated || to.profile.calls.upstreamsInMcp ? withUpstreams(own, gateway, to, discovery) : own
  }
  return {
    ...state,
    core,
    caller,
    offer: await offerTo(caller),
    requireTool: (name) => {
      if (typeof name === 'string') request.open?.require(async (now) => (await offerTo(now)).tool(name))
    },
    serverVersion: version,
    baseUrl: baseUrlOf(request, addressing),
    streamAfterMs,
    results: readResultOptions((name) => queryOf(request, name), caller.profile.calls),
    wantsSession: queryOf(request, 'session') === 'true',
    disconnected: disconnectSignal(reply.raw),
    log: request.log as typeof log,
  }
}

/** Adds what upstreams offer; instead of their tools, those that find and call them if requested. @throws Refusal `invalid_argument`. */
async function withUpstreams(
  own: Offer,
  gateway: Gateway,
  caller: Caller,
  discovery: string | undefined,
): Promise<Offer> {
  const upstreams = await upstreamsOf(gateway, caller)
  const tools = namedTools(
    upstreams,
    own.tools.map(({ name }) => name),
  )
  const contents = upstreamContents(gateway, upstreams, (name) => own.prompts.some((prompt) => prompt.name === name))
  const offer = withContents(own, contents)
  switch (discovery) {
    case undefined:
      return withTools(
        offer,
        tools.map(listingOf),
        tools.map((tool) => toTool(gateway, tool)),
      )
    case 'search':
      return withTools(offer, discoveryListings(tools.length), discoveryTools(gateway, tools))
    default:
      throw new Refusal('invalid_argument', { field: 'discovery', problem: 'must be search' })
  }
}

/** Returns a getter of a signal that aborts when the client disconnects early. The signal is created on first use. */
function disconnectSignal(raw: ServerResponse): () => AbortSignal {
  let gone: AbortController | undefined
  return () => {
    if (gone) return gone.signal
    const controller = new AbortController()
    gone = controller
    const abort = () => {
      if (!raw.writableFinished) controller.abort()
    }
    if (raw.destroyed) abort()
    else raw.once('close', abort)
    return controller.signal
  }
}

const headersOf =
  ({ headers }: FastifyRequest): HeaderOf =>
  (name) => {
    const value = headers[name]
    return Array.isArray(value) ? value.join(', ') : value
  }

async function send(reply: FastifyReply, answer: McpReply, log: HttpDeps['log']): Promise<void> {
  switch (answer.kind) {
    case 'empty':
      return reply.code(answer.status).send()
    case 'json':
      if (answer.retryAfterSeconds !== undefined) reply.header('retry-after', answer.retryAfterSeconds)
      if (answer.sessionId !== undefined) reply.header('mcp-session-id', answer.sessionId)
      return sendJson(reply, answer.status, answer.body)
    case 'stream':
      return sendEvents(reply, answer.messages, log)
  }
}

/** Turns the answer to a request into the only message of a stream. An error of HTTP stays JSON. */
function toEvents(reply: FastifyReply, answer: McpReply): McpReply {
  if (answer.kind !== 'json' || answer.status !== 200) return answer
  if (answer.sessionId !== undefined) reply.header('mcp-session-id', answer.sessionId)
  return { kind: 'stream', messages: onlyMessage(answer.body) }
}

async function* onlyMessage(message: string): AsyncGenerator<string, void, undefined> {
  yield message
}

/** Sends each message as a server-sent event, until the client disconnects. */
async function sendEvents(
  reply: FastifyReply,
  messages: AsyncGenerator<string, void, undefined>,
  log: HttpDeps['log'],
): Promise<void> {
  reply.code(200).header('content-type', 'text/event-stream').header('x-accel-buffering', 'no')
  const writer = startWriting(reply).keepAlive(': keep-alive\n\n')
  reply.raw.flushHeaders()
  try {
    for await (const message of messages) {
      await writer.write(`event: message\ndata: ${escapeLineBreaks(message)}\n\n`)
      if (writer.gone) return
    }
  } catch (error) {
    fault(error, log)
  } finally {
    writer.end()
  }
}

function queryOf(
  request: FastifyRequest,
  name: 'toolsets' | 'session' | 'discovery' | keyof typeof resultParameters,
): string | undefined {
  const value = (request.query as Record<string, unknown>)[name]
  if (value === undefined || typeof value === 'string') return value
  throw new Refusal('invalid_argument', { field: name, problem: 'must be given once' })
}

const group: Group = { name: 'MCP', description: 'The Model Context Protocol.' }

/** Each tool requires its own capability. Admin tokens have the runtime tools. */
const protocol = { capability: null, group } as const

/**
 * The form in which SDKs show the message to people: a JSON-RPC error whose request is unknown. The body for an invalid key
 * is part of the contract with clients that compare it.
 */
const mcpErrorBody = (refusal: Refusal): string => {
  const { code, row, hint } = refusal
  if (code === 'unauthorized') return errorBody(refusal)
  return errorReply(null, refusal, row.http, { error: row.error, code, hint, retry: row.retry }).body
}

const accessOf = (path: string) => (path === aggregatedPath ? 'key' : 'key or admin token')

const query = {
  toolsets: 'Toolsets to offer, separated by commas.',
  ...resultParameters,
  session: 'true creates a session, which only tools that send requests to the client need.',
}

/** The operations of one path. @param suffix of their ids. */
const operationsOf = (path: string, suffix: string, summary: string, more: QueryParameters): readonly Operation[] => [
  {
    ...{ ...protocol, access: accessOf(path), path, id: `mcp${suffix}`, method: 'POST', summary },
    query: { ...query, ...more },
    body: { mediaType: 'application/json' },
    answers: { 200: { mediaType: 'application/json' }, 202: null },
    errorBody: mcpErrorBody,
    refusals: ['parse_error', 'invalid_request', 'thread_busy'],
    handler: ({ mcp }) => mcp.post,
  },
  {
    ...{ ...protocol, access: accessOf(path), path, id: `mcpEvents${suffix}`, method: 'GET' },
    summary: 'Open the stream of server messages, for MCP clients before 2026-07-28',
    answers: { 200: { mediaType: 'text/event-stream' } },
    refusals: ['method_not_allowed'],
    handler: ({ mcp }) => mcp.get,
  },
  {
    ...{ ...protocol, access: accessOf(path), path, id: `endMcpSession${suffix}`, method: 'DELETE' },
    summary: 'End an MCP session',
    answers: { 204: null },
    refusals: ['method_not_allowed'],
    handler: ({ mcp }) => mcp.delete,
  },
]

export const mcpOperations: readonly Operation[] = [
  ...operationsOf('/mcp', '', 'Send an MCP message; see docs/mcp.md', {}),
  ...operationsOf(
    aggregatedPath,
    'WithUpstreams',
    'Send an MCP message, with the tools of upstreams; see docs/gateway.md',
    {
      discovery: 'search offers tool_search and tool_call instead of all tools of upstreams.',
    },
  ),
]
