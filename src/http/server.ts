import { type FastifyBaseLogger, type FastifyInstance, type FastifyRequest, fastify, LogController } from 'fastify'
import { Refusal } from '../base/errors.ts'
import { newId } from '../base/ids.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import type { Log } from '../observe/log.ts'
import { authenticator } from './authenticate.ts'
import { admit, type DoorRules } from './door.ts'
import { answerError } from './errors.ts'
import { type HttpRooms, routes } from './routes.ts'

export interface HttpConfig extends DoorRules {
  host: string
  port: number
  maxBodyBytes: number
  /** Addresses and networks of proxies whose `X-Forwarded-For` is believed. */
  trustedProxies: readonly string[]
  /** Of the product, as clients are told. */
  version: string
}

declare module 'fastify' {
  interface FastifyRequest {
    caller: Caller
  }
  interface FastifyContextConfig {
    /** Answers without knowing who asks: nothing but whether the server is alive. */
    open?: boolean
  }
}

/** Time to send a whole request; more is a client that holds a connection for nothing. */
const requestTimeoutMs = 60_000
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
  log,
  offers,
}: {
  core: Core
  config: HttpConfig
  log: Log
  /** For suites that offer something else than the product does. */
  offers?: HttpRooms['offers']
}): Promise<FastifyInstance> {
  const authenticate = await authenticator(core, config)
  const app: FastifyInstance = fastify({
    loggerInstance: log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' }),
    genReqId: () => newId('request'),
    bodyLimit: config.maxBodyBytes,
    requestTimeout: requestTimeoutMs,
    keepAliveTimeout: keepAliveTimeoutMs,
    forceCloseConnections: 'idle',
    exposeHeadRoutes: false,
  })
  // Bodies are read by our own parser, which bounds their shape; the framework hands over the bytes.
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
  app.setErrorHandler(answerError)

  app.addHook('onRequest', async (request, reply) => {
    reply
      .header('x-trace-id', request.id)
      .header('x-content-type-options', 'nosniff')
      .header('cache-control', 'no-store')
    const refusal = admit(request.raw, portOf(request, config), config)
    if (refusal) throw refusal
    // An address with a host of its own would speak past the one that was just checked.
    if (!request.url.startsWith('/')) throw new Refusal('invalid_request', { problem: 'the address must be a path' })
    const { origin } = request.headers
    if (origin === undefined) return
    reply.header('access-control-allow-origin', origin).header('vary', 'origin')
    if (request.method === 'OPTIONS') return reply.code(204).headers(preflight).send()
  })
  app.addHook('onRequest', async (request) => {
    if (!request.is404 && request.routeOptions.config.open !== true) request.caller = await authenticate(request.raw)
  })
  app.addHook('onResponse', async (request, reply) => {
    const { method, routeOptions } = request
    const line = {
      method,
      route: routeOptions.url ?? '(none)',
      status: reply.statusCode,
      ms: Math.round(reply.elapsedTime),
    }
    request.log[reply.statusCode < 400 ? 'debug' : 'info'](line, 'answered')
  })

  endConnectionsOnClose(app)

  routes(app, { core, version: config.version, log, ...(offers && { offers }) })
  return app
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
  app.addHook('onResponse', async ({ raw }) => {
    if (closing) raw.socket.destroySoon()
  })
}

const portOf = ({ raw }: FastifyRequest, { port }: HttpConfig): number => raw.socket.localPort ?? port

/** For pages of an allowed origin; the browser asks before it sends JSON. */
const preflight = {
  'access-control-allow-methods': 'GET, POST',
  'access-control-allow-headers': 'authorization, x-api-key, content-type, accept, mcp-protocol-version',
  'access-control-max-age': '600',
}
