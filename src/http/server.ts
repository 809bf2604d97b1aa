import { type FastifyBaseLogger, type FastifyInstance, type FastifyRequest, fastify, LogController } from 'fastify'
import { Refusal } from '../base/errors.ts'
import { newId } from '../base/ids.ts'
import type { Admin } from '../core/admin/admin.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import { type Authentication, authenticator } from './authenticate.ts'
import { answerError } from './errors.ts'
import { door, type GuardRules } from './request-guard.ts'
import { RequestTimeouts } from './request-timeouts.ts'
import { type HttpDeps, routes } from './routes.ts'

export interface HttpConfig extends GuardRules {
  host: string
  port: number
  maxBodyBytes: number
  /** Addresses and networks of proxies whose `X-Forwarded-For` is believed. */
  trustedProxies: readonly string[]
  /** Of the product, as clients are told. */
  version: string
  publicUrl: string
}

declare module 'fastify' {
  interface FastifyRequest {
    caller: Caller
    /** On paths of administration, and there alone. */
    admin: Admin
  }
  interface FastifyContextConfig {
    /** Answers without knowing who asks: nothing but whether the server is alive. */
    open?: boolean
    /** Takes an admin token, and no key. */
    admin?: boolean
    /** What clients send to it: JSON, all of it within a minute, or a file, for as long as it takes. */
    sends?: 'file'
    /** Tells of the whole instance: see `Authentication.operator`. */
    operator?: boolean
  }
}

/** Time to send a whole request; more is a client that holds a connection for nothing. */
const requestTimeoutMs = 60_000
/** Longer than any path of a file in base64. */
const pathParameterMax = 12_288
/** Longer than the idle time of common proxies, so that they close first and no request meets a closing connection. */
const keepAliveTimeoutMs = 72_000
/** For the answers that are under way when the server closes; a client that has not taken its own by then is cut off. */
const closingMs = 5_000

/**
 * Builds the HTTP server, not yet listening.
 * @throws StartRefused where serving with this configuration would be open to others.
 */
export async function buildServer({
  core,
  config,
  metrics,
  log,
  offers,
}: {
  core: Core
  config: HttpConfig
  /** Told of every answer, and served. */
  metrics: Metrics
  log: Log
  /** For suites that offer something else than the product does. */
  offers?: HttpDeps['offers']
}): Promise<FastifyInstance> {
  const authentication = await authenticator(core, config)
  const admit = door(config)
  const app: FastifyInstance = fastify({
    loggerInstance: log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' }),
    genReqId: () => newId('request'),
    bodyLimit: config.maxBodyBytes,
    // See `RequestTimeouts`.
    requestTimeout: 0,
    // Tokens of signed links stand in the path, and hold a path of a file.
    routerOptions: { maxParamLength: pathParameterMax },
    keepAliveTimeout: keepAliveTimeoutMs,
    forceCloseConnections: 'idle',
    exposeHeadRoutes: false,
  })
  // Bodies are read by our own parser, which bounds their shape; the framework hands over the bytes.
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
  app.setErrorHandler(answerError)

  // Every request has one, and shares its shape.
  app.decorateRequest('caller', null as unknown as Caller)
  app.decorateRequest('admin', null as unknown as Admin)
  const arriving = new RequestTimeouts(requestTimeoutMs)
  app.addHook('onClose', async () => arriving.stop())
  // With callbacks: a promise for each hook would cost the hot path more than what the hook does.
  app.addHook('onRequest', (request, reply, done) => {
    if (request.routeOptions.config?.sends !== 'file') arriving.add(request.raw)
    else arriving.excuse(request.raw)
    reply.headers({ 'x-trace-id': request.id, 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' })
    const refusal = admit(request.raw, portOf(request, config))
    if (refusal) return done(refusal)
    // An address with a host of its own would speak past the one that was just checked.
    if (!request.url.startsWith('/'))
      return done(new Refusal('invalid_request', { problem: 'the address must be a path' }))
    const { origin } = request.headers
    if (origin !== undefined) {
      reply.header('access-control-allow-origin', origin).header('vary', 'origin')
      if (request.method === 'OPTIONS') return void reply.code(204).headers(preflight).send()
    }
    if (request.is404 || request.routeOptions.config.open === true) return done()
    enter(request, authentication, done)
  })
  app.addHook('onResponse', (request, reply, done) => {
    metrics.answered(request.method, routeOf(request), reply.statusCode)
    const level = reply.statusCode < 400 ? 'debug' : 'info'
    if (log.isLevelEnabled(level)) {
      const { method } = request
      const route = routeOf(request)
      request.log[level]({ method, route, status: reply.statusCode, ms: Math.round(reply.elapsedTime) }, 'answered')
    }
    done()
  })

  endConnectionsOnClose(app)

  const { version, publicUrl } = config
  routes(app, { core, metrics, version, publicUrl, log, ...(offers && { offers }) })
  return app
}

/** Lets a request in once it is known who asks. */
function enter(
  request: FastifyRequest,
  { admin, caller, operator }: Authentication,
  done: (error?: Error) => void,
): void {
  if (request.routeOptions.config.operator === true) entering(operator(request.raw), () => {}, done)
  else if (request.routeOptions.config.admin === true) {
    entering(admin(request.raw), (who) => (request.admin = who), done)
  } else entering(caller(request.raw), (who) => (request.caller = who), done)
}

function entering<Who>(who: Who | Promise<Who>, set: (who: Who) => void, done: (error?: Error) => void): void {
  const enter = (known: Who) => {
    set(known)
    done()
  }
  if (who instanceof Promise) who.then(enter, done)
  else enter(who)
}

/**
 * The framework closes what is idle when the close begins. A connection that is busy then would be kept alive by its
 * client after its answer and hold the close up, and one whose client does not read would hold it up for good.
 */
function endConnectionsOnClose(app: FastifyInstance): void {
  let closing = false
  app.addHook('preClose', async () => {
    closing = true
    const late = setTimeout(() => app.server.closeAllConnections(), closingMs)
    app.server.once('close', () => clearTimeout(late))
  })
  app.addHook('onResponse', ({ raw }, _reply, done) => {
    if (closing) raw.socket.destroySoon()
    done()
  })
}

/** As it is registered: what a client made up is no route. */
const routeOf = ({ routeOptions }: FastifyRequest): string => routeOptions.url ?? '(none)'

const portOf = ({ raw }: FastifyRequest, { port }: HttpConfig): number => raw.socket.localPort ?? port

/** For pages of an allowed origin; the browser asks before it sends JSON. */
const preflight = {
  'access-control-allow-methods': 'GET, POST',
  'access-control-allow-headers': 'authorization, x-api-key, content-type, accept, mcp-protocol-version',
  'access-control-max-age': '600',
}
