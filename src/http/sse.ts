import { setTimeout as delay } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify'
import { monotonicMs } from '../base/clock.ts'
import { Refusal } from '../base/errors.ts'
import { escapeLineBreaks, parseJson } from '../base/json.ts'
import type { Caller } from '../core/caller.ts'
import type { McpState } from '../mcp/handle.ts'
import { errorReply } from '../mcp/json-rpc/encode.ts'
import { type EventSession, EventSessions } from '../mcp/legacy/event-session.ts'
import { readResultOptions } from '../mcp/result-options.ts'
import { type Catalog, chooseToolsets, defaultToolsets } from '../tools/catalog.ts'
import { sendJson, startWriting } from './answer.ts'
import { baseUrlOf } from './base-url.ts'
import type { Group, HttpDeps, Operation } from './operation.ts'

/** Times of a connection, in milliseconds. */
export interface EventTimes {
  /** A connection without messages for this time is closed; its client connects again. */
  idleMaxMs: number
  /** Longest time for which a connection is open. */
  lifetimeMs: number
  /** How often both are checked. */
  checkEveryMs: number
  /** Silence after which a comment is sent: a quarter of the minute after which common proxies close a silent connection. */
  keepAliveMs: number
  /** How long messages that are being answered may take when the server stops. */
  graceMs: number
}

const hourMs = 3_600_000
const usualTimes: EventTimes = {
  ...{ idleMaxMs: hourMs, lifetimeMs: 24 * hourMs, checkEveryMs: 30_000 },
  ...{ keepAliveMs: 15_000, graceMs: 10_000 },
}
const closingCheckMs = 20
/** A call over a stream that is open anyway never changes the form of its response. */
const never = 2 ** 31 - 1

/** The handlers of the transport of 2024-11-05. */
export interface EventsEndpoint {
  open: RouteHandlerMethod
  message: RouteHandlerMethod
  /** Number of open connections. */
  readonly size: number
}

type EventsState = Pick<McpState, 'tasks' | 'changes' | 'closing'>

/** What the request that opened a connection has chosen. */
interface Choice {
  toolsets: string | undefined
  query: (name: string) => string | undefined
}

/** MCP over HTTP with SSE: https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse */
export function eventsEndpoint(deps: HttpDeps, catalog: Catalog, state: EventsState): EventsEndpoint {
  const sessions = new EventSessions()
  const choices = new WeakMap<EventSession, Choice>()
  const offerTo = async (to: Caller, { toolsets }: Choice) => {
    const chosen = toolsets === undefined ? preferredToolsets(to) : chooseToolsets(toolsets, to.profile)
    return catalog.offer(to.profile, chosen, await deps.core.hiddenTools(to), to.tools)
  }
  return {
    get size() {
      return sessions.size
    },
    open: async (request, reply) => {
      if (state.closing.aborted) throw new Refusal('unavailable', { reason: 'the server is stopping' })
      const choice: Choice = { toolsets: queryOf(request, 'toolsets'), query: (name) => queryOf(request, name) }
      // Refuses unknown names before the stream begins.
      await offerTo(request.caller, choice)
      const session = sessions.open(request.caller.keyId)
      choices.set(session, choice)
      session.onUnread = (characters) => request.open?.holdUnread(characters)
      session.onOverflow = () => reply.raw.destroy()
      // The connection ends when its key no longer has the toolset.
      request.open?.require((now) => offerTo(now, choice))
      try {
        await stream(reply, session, deps, state.closing)
      } finally {
        sessions.end(session)
      }
    },
    message: async (request, reply) => {
      try {
        const { caller } = request
        const session = sessions.find(caller.keyId, queryOf(request, 'sessionId'))
        if (state.closing.aborted) throw new Refusal('unavailable', { reason: 'the server is stopping' })
        const body = parseJson(request.body as Buffer)
        const choice = choices.get(session)!
        const { core, version, log, ...addressing } = deps
        session.receive(body, {
          ...state,
          ...{ core, caller, serverVersion: version, streamAfterMs: never },
          offer: await offerTo(caller, choice),
          baseUrl: baseUrlOf(request, addressing),
          results: readResultOptions(choice.query, caller.profile.calls),
          // The connection as a whole is checked.
          requireTool: () => {},
          connectionId: session.id,
          log: request.log as typeof log,
        })
        return reply.code(202).send()
      } catch (error) {
        if (!(error instanceof Refusal)) throw error
        return sendJson(reply, error.row.http, errorReply(null, error, error.row.http).body)
      }
    },
  }
}

/** Clients of this transport are coding agents. */
function preferredToolsets({ profile }: Caller) {
  const { toolsets } = profile.calls
  return toolsets.includes('workspace') ? onlyWorkspace : defaultToolsets(profile)
}

const onlyWorkspace = ['workspace'] as const

/** Sends the events of a connection until it ends. */
async function stream(reply: FastifyReply, session: EventSession, deps: HttpDeps, closing: AbortSignal): Promise<void> {
  const { request } = reply
  reply.code(200).header('content-type', 'text/event-stream').header('x-accel-buffering', 'no')
  const { idleMaxMs, lifetimeMs, checkEveryMs, keepAliveMs, graceMs } = { ...usualTimes, ...deps.eventTimes }
  const writer = startWriting(reply).keepAlive(': keep-alive\n\n', { afterMs: keepAliveMs })
  const end = () => session.close()
  reply.raw.once('close', end)
  const openedMs = monotonicMs()
  const timer = setInterval(() => {
    if (session.idleMs > idleMaxMs || monotonicMs() - openedMs > lifetimeMs) end()
  }, checkEveryMs).unref()
  const stop = () => void endInGrace(session, graceMs)
  closing.addEventListener('abort', stop, { once: true })
  try {
    await writer.write(`event: endpoint\ndata: ${pathPrefix(request, deps)}/message?sessionId=${session.id}\n\n`)
    for await (const message of session.messages) {
      await writer.write(`event: message\ndata: ${escapeLineBreaks(message)}\n\n`)
      if (writer.gone) return
    }
  } finally {
    clearInterval(timer)
    closing.removeEventListener('abort', stop)
    reply.raw.off('close', end)
    writer.end()
  }
}

/** The address is relative, so that it is valid from wherever the client has reached this server. */
function pathPrefix(request: FastifyRequest, deps: HttpDeps): string {
  const { pathname } = new URL(baseUrlOf(request, deps))
  return pathname.replace(/\/+$/, '')
}

/** Lets calls in progress finish, for a limited time. */
async function endInGrace(session: EventSession, graceMs: number): Promise<void> {
  for (const endMs = monotonicMs() + graceMs; session.active > 0 && monotonicMs() < endMs; ) await delay(closingCheckMs)
  session.close()
}

function queryOf(request: FastifyRequest, name: string): string | undefined {
  const value = (request.query as Record<string, unknown>)[name]
  if (value === undefined || typeof value === 'string') return value
  throw new Refusal('invalid_argument', { field: name, problem: 'must be given once' })
}

const group: Group = { name: 'MCP over HTTP with SSE', description: 'The transport of protocol version 2024-11-05.' }
const protocol = { access: 'key', capability: null, group } as const

export const eventOperations: readonly Operation[] = [
  {
    ...{ ...protocol, path: '/sse', id: 'openEvents', method: 'GET' },
    summary: 'Open the stream of a client of the transport of 2024-11-05; see docs/workspaces.md',
    query: {
      toolsets: 'Toolsets to offer, separated by commas. Default: workspace.',
      structured: 'As for /mcp.',
      errors: 'As for /mcp.',
      busy: 'As for /mcp.',
    },
    answers: { 200: { mediaType: 'text/event-stream' } },
    refusals: ['invalid_argument', 'unavailable'],
    handler: ({ events }) => events.open,
  },
  {
    ...{ ...protocol, path: '/message', id: 'sendMessage', method: 'POST' },
    summary: 'Send a message of a client whose stream is open',
    query: { sessionId: 'From the endpoint event of the stream.' },
    body: { mediaType: 'application/json' },
    answers: { 202: null },
    refusals: ['message_session_missing', 'message_session_unknown', 'messages_full', 'parse_error', 'unavailable'],
    handler: ({ events }) => events.message,
  },
]
