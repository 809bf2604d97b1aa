import cors from '@fastify/cors'
import {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  fastify,
  LogController,
} from 'fastify'
import { Refusal } from '../base/errors.ts'
import { newId } from '../base/ids.ts'
import type { OpenRequest } from '../core/access/open-requests.ts'
import type { Admin } from '../core/admin/admin.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import type { Gateway } from '../gateway/gateway.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import { type Authentication, authenticator } from './authenticate.ts'
import { Connections } from './connections.ts'
import { type Login, Logins } from './console/logins.ts'
import { answerError } from './errors.ts'
import { forwardedReader } from './forwarded.ts'
import { receiveLargeBodiesInTurn } from './large-bodies.ts'
import { openRequest } from './open-request.ts'
import type { Access, HttpDeps } from './operation.ts'
import { PreviewServer } from './previews/previews.ts'
import { checkContentType, type GuardRules, requestGuard } from './request-guard.ts'
import { beginRequestsInTurn, Turns } from './requests-in-turn.ts'
import type { UploadPace } from './rest/upload-body.ts'
import { registerRoutes } from './routes.ts'
import { endConnectionsOnClose, keepAliveTimeoutMs, serve } from './serve.ts'
import { type TlsFiles, TlsServer } from './tls.ts'
import { traceRequests } from './trace-requests.ts'

export interface HttpConfig extends GuardRules {
  host: string
  port: number
  maxBodyBytes: number
  /** Open connections at the same time. */
  connectionsMax: number
  /** Addresses and networks of proxies whose `X-Forwarded-*` and `Forwarded` are trusted. */
  trustedProxies: readonly string[]
  /** Below which previews have host names, with the port of their addresses; empty for none. */
  previewDomain: string
  /** Version of the product. */
  version: string
  publicUrl: string
  tls?: TlsFiles | undefined
  uploadPace: UploadPace
  eventTimes?: HttpDeps['eventTimes']
  /** Addresses and networks from which runtime tools may be used; none: all. */
  runtimeAllowed: readonly string[]
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Set on routes with access `key`. */
    caller: Caller
    /** Set on routes with access `admin token`. */
    admin: Admin
    /** Set if a browser sent it that is logged in. */
    login: Login | null
    /** Set when the sender is authenticated. */
    open: OpenRequest | null
  }
  interface FastifyContextConfig {
    /** A route without it requires a key. */
    access?: Access
    /** A file may take as long as it needs; every other body must arrive within `requestTimeoutMs`. */
    bodyKind?: 'file'
    /** Body of every error of the path; see `Operation`. */
    errorBody?: (refusal: Refusal) => string
    /** The path does not have this method. */
    isRefused?: true
  }
}

/** Time in which a whole request must arrive, so that slow clients cannot occupy connections. */
const requestTimeoutMs = 60_000
/** Longer than any path of a file in base64. */
const pathParameterMax = 12_288
/**
 * Builds the HTTP server, not yet listening.
 * @throws StartRefused where serving with this configuration would be open to others.
 */
export async function buildServer({
  core,
  gateway,
  config,
  metrics,
  log,
  offers,
}: {
  core: Core
  gateway: Gateway
  config: HttpConfig
  metrics: Metrics
  log: Log
  offers?: HttpDeps['offers']
}): Promise<FastifyInstance> {
  const forwarded = forwardedReader(config.trustedProxies)
  const logins = new Logins()
  const authentication = await authenticator(core, config, forwarded, logins)
  const guard = requestGuard(config)
  let previews: PreviewServer | undefined
  const tls = config.tls && new TlsServer(config.tls, log)
  const app: FastifyInstance = fastify({
    loggerInstance: log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' }),
    genReqId: () => newId('request'),
    bodyLimit: config.maxBodyBytes,
    // The token of a signed link is a path parameter and contains the path of a file.
    routerOptions: { maxParamLength: pathParameterMax, ignoreTrailingSlash: true },
    keepAliveTimeout: keepAliveTimeoutMs,
    forceCloseConnections: 'idle',
    exposeHeadRoutes: false,
    // Runs for malformed URLs, for which Fastify calls no hooks.
    serverFactory: serve(tls, () => previews),
    frameworkErrors: (error, request, reply) => {
      setCommonHeaders(request, reply, config.allowedOrigins)
      void answerError(guard(request.raw) ?? error, request, reply)
    },
  })
  // Fastify passes the bytes on: our own parser bounds the depth and number of values.
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
  app.setErrorHandler(answerError)

  // Declared here so that all requests share one hidden class.
  app.decorateRequest('caller', null as unknown as Caller)
  app.decorateRequest('admin', null as unknown as Admin)
  app.decorateRequest('login', null)
  app.decorateRequest('open', null)
  const connections = new Connections(app.server, { max: config.connectionsMax, requestTimeoutMs })
  const turns = new Turns()
  previews = new PreviewServer({
    ...{ core, domain: config.previewDomain, guard, forwarded, connections, turns, metrics: metrics.previews, log },
    authenticate: authentication.caller,
  })
  app.addHook('onClose', async () => {
    connections.stop()
    previews?.stop()
    tls?.stop()
  })
  metrics.front = () => {
    const { requests, bytes } = core.openRequests.usage
    return { connections: connections.size, requests, bufferBytes: bytes, previews: core.previews.size }
  }
  app.addHook('onError', (_request, _reply, error, done) => {
    if (error instanceof Refusal && limitRefusals.has(error.code)) metrics.refusedRequest(error.code)
    done()
  })
  if (metrics.tracing) traceRequests(app, metrics.tracing)
  // Hooks use callbacks: a promise per hook would cost more than the hook itself.
  app.addHook('onRequest', (request, reply, done) => {
    const isUpload = request.routeOptions.config?.bodyKind === 'file'
    const refusal = connections.begin(request.raw, reply.raw, isUpload)
    // Also emitted when the client disconnects, unlike `onResponse`.
    reply.raw.once('close', () => {
      connections.end(request.raw)
      request.open?.close()
    })
    setCommonHeaders(request, reply, config.allowedOrigins)
    if (refusal) reply.header('connection', 'close')
    done(refusal ?? guard(request.raw))
  })
  if (config.allowedOrigins.length > 0) await allowOrigins(app, config.allowedOrigins)
  app.addHook('onRequest', (request, reply, done) => {
    const { isRefused } = request.routeOptions.config ?? {}
    const refusal = isRefused ? undefined : checkContentType(request.method, request.headers['content-type'])
    if (refusal) return done(refusal)
    // An absolute URL names a host of its own, which could differ from the one that was checked.
    if (!request.url.startsWith('/'))
      return done(new Refusal('invalid_request', { problem: 'the address must be a path' }))
    // Before the body is read: the caller is not authenticated, so its memory cannot be accounted.
    if (request.is404) return done(toNotFound(request.url))
    authenticate(request, authentication, (error) => {
      done(error ?? refusalOf(() => registerOpen(core, request, reply)))
    })
  })
  app.addHook('onResponse', (request, reply, done) => {
    const isStream = reply.getHeader('content-type') === 'text/event-stream'
    metrics.answered(
      request.method,
      routeOf(request),
      reply.statusCode,
      isStream ? null : reply.elapsedTime,
      request.id,
    )
    const level = reply.statusCode < 400 ? 'debug' : 'info'
    if (log.isLevelEnabled(level))
      request.log[level](answerLine(request, reply, forwarded(request.raw).address), 'answered')
    done()
  })

  beginRequestsInTurn(app, turns)
  receiveLargeBodiesInTurn(app)
  endConnectionsOnClose(app)

  const { version, dev, publicUrl, uploadPace, eventTimes } = config
  registerRoutes(app, {
    core,
    gateway,
    metrics,
    version,
    dev,
    publicUrl,
    forwarded,
    uploadPace,
    logins,
    log,
    ...(eventTimes && { eventTimes }),
    ...(offers && { offers }),
  })
  return app
}

/** What the log states about an answer. Its trace ID is that of the run, if it has one, otherwise that of the request. */
function answerLine(request: FastifyRequest, reply: FastifyReply, address: string) {
  const { method, caller, admin } = request as FastifyRequest & { caller: Caller | null; admin: Admin | null }
  const who = { org_id: caller?.orgId ?? admin?.orgId ?? null, key_id: caller?.keyId ?? admin?.id ?? null }
  const { statusCode: status, elapsedTime } = reply
  const trace = reply.getHeader('x-trace-id')
  return { method, route: routeOf(request), status, ms: Math.round(elapsedTime), address, ...who, trace_id: trace }
}

/** Response headers that pages of allowed origins can read. */
const exposedHeaders = [
  ...['x-trace-id', 'x-glovebox-warning', 'mcp-session-id', 'retry-after', 'www-authenticate', 'allow'],
  ...[
    'preference-applied',
    'location',
    'etag',
    'last-modified',
    'accept-ranges',
    'content-range',
    'content-disposition',
  ],
]

/**
 * Answers preflight requests of these origins and lets their pages read every response, errors included. Registered
 * after the guard, which has refused every other origin, and before authentication, which a preflight cannot pass.
 */
async function allowOrigins(app: FastifyInstance, origins: readonly string[]): Promise<void> {
  // The plugin registers `OPTIONS *`, so that a preflight finds a route.
  app.addHook('onRoute', (route) => {
    if (route.url === '*') route.config = { ...route.config, access: 'open' }
  })
  await app.register(cors, {
    // A request without Origin is no CORS request, also where its method is OPTIONS.
    origin: (origin, decide) => decide(null, origin !== undefined && origins.includes(origin)),
    strictPreflight: false,
    methods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'],
    // Absent, `allowedHeaders` allows the requested ones: MCP names `Mcp-Param-*` after the arguments of a tool.
    exposedHeaders: [...exposedHeaders],
    maxAge: 600,
  })
}

/** Refusals at the limits of `connections_max`, `requests_per_key`, `requests_per_org` and `buffer_bytes`. */
const limitRefusals: ReadonlySet<string> = new Set(['connections_full', 'requests_full', 'buffers_full'])

/** Where clients of MCP look for an authorization server, or expect one: RFC 8414, RFC 9728, OpenID Connect Discovery. */
const oauthPath = /\/\.well-known\/(?:oauth-|openid-configuration)|^\/(?:register|authorize|token)$/

function toNotFound(url: string): Refusal {
  const path = url.split('?')[0]!
  return oauthPath.test(path)
    ? new Refusal('oauth_unsupported')
    : new Refusal('not_found', { what: path.slice(0, 128) })
}

/** Registers a request under its key or admin token. @throws Refusal `requests_full`, `buffers_full`. */
function registerOpen(core: Core, request: FastifyRequest, reply: FastifyReply): void {
  const { caller, admin } = request
  if (caller) openRequest(core, request, reply, caller)
  else if (admin) openRequest(core, request, reply, { orgId: admin.orgId ?? 'instance', keyId: admin.id })
}

/** Returns what `act` throws. */
function refusalOf(act: () => void): Error | undefined {
  try {
    act()
    return undefined
  } catch (error) {
    return error as Error
  }
}

/** Authenticates a request as its route requires, and sets `caller` or `admin`. */
function authenticate(
  request: FastifyRequest,
  { admin, caller, callerOrAdmin, operator, runtime }: Authentication,
  done: (error?: Error) => void,
): void {
  const { access = 'key' } = request.routeOptions.config
  switch (access) {
    case 'open':
      done()
      return
    case 'key':
      settle(caller(request), (who) => (request.caller = who), done)
      return
    case 'key or admin token':
      settle(callerOrAdmin(request), (who) => (request.caller = who), done)
      return
    case 'runtime':
      settle(runtime(request), (who) => (request.admin = who), done)
      return
    case 'admin token':
      settle(admin(request), (who) => (request.admin = who), done)
      return
    case 'operator':
      settle(operator(request), () => {}, done)
  }
}

function settle<Who>(who: Who | Promise<Who>, set: (who: Who) => void, done: (error?: Error) => void): void {
  const finish = (known: Who) => {
    set(known)
    done()
  }
  if (who instanceof Promise) who.then(finish, done)
  else finish(who)
}

/** Set before anything is refused, so that pages of allowed origins can read every error. */
function setCommonHeaders({ id, headers }: FastifyRequest, reply: FastifyReply, origins: readonly string[]): void {
  reply.headers({ 'x-trace-id': id, 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' })
  if (origins.length === 0) return
  // Also without an origin: a cache must not answer a page with what it keeps for programs.
  reply.header('vary', 'Origin')
  const { origin } = headers
  if (origin === undefined || !origins.includes(origin)) return
  reply.headers({
    'access-control-allow-origin': origin,
    'access-control-expose-headers': exposedHeaders.join(', '),
  })
}

/** Returns the path pattern of a route: the path itself comes from the client and is unbounded. */
const routeOf = ({ routeOptions }: FastifyRequest): string => routeOptions.url ?? '(none)'
