import type { FastifyReply, FastifyRequest, RouteHandlerMethod } from 'fastify'
import type { Static, TObject, TSchema } from 'typebox'
import type { Capability } from '../base/capabilities.ts'
import type { Refusal, RefusalCode } from '../base/errors.ts'
import { parseJson } from '../base/json.ts'
import { type CheckOptions, compile } from '../base/schema-check.ts'
import type { Admin, AdminContext } from '../core/admin/admin.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import type { Page } from '../core/paging.ts'
import type { Gateway } from '../gateway/gateway.ts'
import type { ChangeFeed } from '../mcp/change-feed.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { Catalog, Inventory } from '../tools/catalog.ts'
import { sendJson, sendLines } from './answer.ts'
import type { Addressing } from './base-url.ts'
import type { Logins } from './console/logins.ts'
import type { McpEndpoint } from './mcp.ts'
import { readQuery } from './query.ts'
import type { UploadPace } from './rest/upload-body.ts'
import type { EventsEndpoint, EventTimes } from './sse.ts'

/** What the server is built from. */
export interface HttpDeps extends Addressing {
  core: Core
  gateway: Gateway
  metrics: Metrics
  version: string
  /** Whether callers need no key. */
  dev: boolean
  uploadPace: UploadPace
  /** The browsers of operators. */
  logins: Logins
  log: Log
  /** Replaces the times of connections of the transport of 2024-11-05, for tests. */
  eventTimes?: Partial<EventTimes>
  /** Replaces the tools of the product, for tests. */
  offers?: { inventory: Inventory; changes: ChangeFeed }
}

/** What every handler can use; built once per server. */
export interface ServerContext extends HttpDeps {
  catalog: Catalog
  mcp: McpEndpoint
  events: EventsEndpoint
  /** Aborts when the server begins to stop: streams end then. */
  closing: AbortSignal
  /** The OpenAPI document as JSON text. */
  openApiJson: string
}

export type Method = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

/**
 * Which credential an operation requires: an API key; an API key or an admin token of the whole instance, which then has
 * the runtime tools; an admin token; an admin token of the whole instance (none in development mode); the same, from an
 * address of `runtime_allowed`; or none, where the operation is public or its path carries a signed link.
 */
export type Access = 'key' | 'key or admin token' | 'admin token' | 'operator' | 'runtime' | 'open'

/** A heading of the documentation and a tag of the OpenAPI document. */
export interface Group {
  name: string
  description: string
}

/** A body that is not checked as JSON: bytes, lines or events. */
export interface Raw {
  mediaType: string
}

export const isRaw = (body: TSchema | Raw): body is Raw => 'mediaType' in body

/** Description of each query parameter by name. A name that ends in `.KEY` stands for every parameter with its prefix. */
export type QueryParameters = Readonly<Record<string, string>>

/** One method of one path. Its route, checks, documentation and OpenAPI description all come from this definition. */
export interface Operation {
  /** Unique; generated clients name their methods after it. */
  id: string
  method: Method
  /** With parameters in braces: `/v1/threads/{id}`. */
  path: string
  access: Access
  /** What the key of the caller must be allowed to do; core checks it. `null` where no capability is needed. */
  capability: Capability | null
  group: Group
  /** One sentence, without a full stop. */
  summary: string
  query?: QueryParameters
  body?: TSchema | Raw | undefined
  /** Body of each successful status; `null` for none. */
  answers: Readonly<Record<number, TSchema | Raw | null>>
  /** One line of a successful answer, where a client that accepts `application/x-ndjson` gets lines. */
  lines?: TSchema
  /** A body, and the answer to it. */
  example?: { body?: object; answer: object }
  /** Maximum size of the body, if it is less than `max_body_bytes`. */
  bodyMaxBytes?: number
  /** Body of every error, where clients of this path expect another one than that of REST. */
  errorBody?: (refusal: Refusal) => string
  /** Refusals besides those that every operation of its access and body can give. */
  refusals: readonly RefusalCode[]
  /** Builds the route handler, once per server. */
  handler(server: ServerContext): RouteHandlerMethod
}

/** What a handler returns; nothing where it wrote the response itself. */
export interface Answer {
  status: 200 | 201 | 202 | 204
  body?: unknown
  /** Instead of a body: one JSON text per line. */
  lines?: AsyncGenerator<object, void, undefined>
}

export const ok = (body: unknown): Answer => ({ status: 200, body })
export const accepted = (body: unknown): Answer => ({ status: 202, body })
export const created = (body: unknown): Answer => ({ status: 201, body })
export const noContent: Answer = { status: 204 }

/** One page of a list. */
export const okPage = <Item>({ items, nextCursor }: Page<Item>): Answer => ok({ data: items, next_cursor: nextCursor })

type ParameterIn<Path extends string> = Path extends `${string}{${infer Name}}${infer Rest}`
  ? Name | ParameterIn<Rest>
  : never

type BodyOf<Body> = Body extends TObject ? Static<Body> : undefined

/** One request, with its path, query and body already checked. */
export interface Call<Path extends string, Body> {
  server: ServerContext
  request: FastifyRequest
  reply: FastifyReply
  /** Path parameters. */
  params: Readonly<Record<ParameterIn<Path>, string>>
  query: Readonly<Record<string, string>>
  body: BodyOf<Body>
}

export interface KeyCall<Path extends string, Body> extends Call<Path, Body> {
  core: Core
  caller: Caller
}

export interface AdminCall<Path extends string, Body> extends Call<Path, Body> {
  context: AdminContext
  admin: Admin
}

interface Definition<Path extends string, Body extends TObject | undefined>
  extends Pick<
    Operation,
    'id' | 'method' | 'group' | 'summary' | 'query' | 'answers' | 'lines' | 'example' | 'refusals'
  > {
  path: Path
  /** Checked before the handler runs. */
  body?: Body
}

interface KeyDefinition<Path extends string, Body extends TObject | undefined> extends Definition<Path, Body> {
  capability: Capability
  /** Converts other accepted values of a field of the body, by its name. */
  aliases?: CheckOptions['aliases']
  handle(call: KeyCall<Path, Body>): Promise<Answer | undefined>
}

/** Defines an operation that requires an API key. */
export function keyOperation<const Path extends string, Body extends TObject | undefined = undefined>({
  aliases,
  handle,
  ...definition
}: KeyDefinition<Path, Body>): Operation {
  const read = requestReader<Path, Body>(definition, {
    emptyBody: 'refused',
    check: { lenient: true, ...(aliases && { aliases }) },
  })
  return {
    ...definition,
    access: 'key',
    handler: (server) => async (request, reply) => {
      const { core } = server
      const { caller } = request
      const answer = await handle({ server, core, caller, request, reply, ...read(request, reply) })
      if (answer) await send(reply, answer)
    },
  }
}

interface AdminDefinition<Path extends string, Body extends TObject | undefined> extends Definition<Path, Body> {
  handle(call: AdminCall<Path, Body>): Promise<Answer | undefined>
}

/** Defines an operation that requires an admin token. Core checks its role. An absent body is read as `{}`. */
export function adminOperation<const Path extends string, Body extends TObject | undefined = undefined>({
  handle,
  ...definition
}: AdminDefinition<Path, Body>): Operation {
  const read = requestReader<Path, Body>(definition, {
    emptyBody: 'object',
    check: {},
  })
  return {
    ...definition,
    refusals: ['invalid_argument', 'forbidden', 'not_found', ...definition.refusals],
    access: 'admin token',
    capability: null,
    handler: (server) => async (request, reply) => {
      const { adminContext: context } = server.core
      const { admin } = request
      const answer = await handle({ server, context, admin, request, reply, ...read(request, reply) })
      if (answer) await send(reply, answer)
    },
  }
}

/**
 * Builds the checks of one operation. The schema is compiled here, once.
 * @throws Refusal invalid_argument, parse_error, when the returned function reads a request.
 */
function requestReader<Path extends string, Body extends TObject | undefined>(
  { query: parameters = {}, body: schema }: Pick<Definition<Path, Body>, 'query' | 'body'>,
  options: { emptyBody: 'object' | 'refused'; check: CheckOptions },
): (request: FastifyRequest, reply: FastifyReply) => Pick<Call<Path, Body>, 'params' | 'query' | 'body'> {
  const { emptyBody } = options
  const check = schema && compile(schema, options.check)
  const readBody = (sent: Buffer | undefined): unknown =>
    emptyBody === 'object' && !sent?.length ? {} : parseJson(sent ?? Buffer.alloc(0))
  return (request, reply) => ({
    params: request.params as Call<Path, Body>['params'],
    query: readQuery(request.query, parameters),
    body: check?.(readBody(request.body as Buffer | undefined), (warning) => {
      reply.header('x-glovebox-warning', warning.replaceAll(/[^\x20-\x7e]/g, '?'))
    }) as BodyOf<Body>,
  })
}

async function send(reply: FastifyReply, { status, body, lines }: Answer): Promise<void> {
  if (lines) return sendLines(reply, lines)
  if (status !== 204) return sendJson(reply, status, JSON.stringify(body))
  await reply.code(status).send()
}
