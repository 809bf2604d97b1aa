import type { FastifyContextConfig, FastifyInstance } from 'fastify'
import { Refusal } from '../base/errors.ts'
import { ChangeFeed } from '../mcp/change-feed.ts'
import { Catalog } from '../tools/catalog.ts'
import { mcpEndpoint, mcpState } from './mcp.ts'
import { openApiDocument } from './openapi/document.ts'
import { type HttpDeps, isRaw, type Operation, type ServerContext } from './operation.ts'
import { operations } from './operations.ts'
import { eventsEndpoint } from './sse.ts'

/** Registers a route for every operation. */
export function registerRoutes(app: FastifyInstance, deps: HttpDeps): void {
  const closing = new AbortController()
  app.addHook('preClose', async () => closing.abort())
  const catalog = new Catalog(deps.offers?.inventory, (image) => deps.core.softwareOf(image))
  const state = mcpState(deps.offers?.changes ?? new ChangeFeed(), closing.signal)
  const server: ServerContext = {
    ...deps,
    catalog,
    closing: closing.signal,
    mcp: mcpEndpoint(deps, catalog, state),
    events: eventsEndpoint(deps, catalog, state),
    openApiJson: JSON.stringify(openApiDocument(deps.version, operations)),
  }
  for (const ofPath of Map.groupBy(operations, ({ path }) => path).values()) {
    if (!ofPath.some(takesFile)) registerRoute(app, ofPath, server)
    else {
      app.register(async (scope) => {
        // The handler reads the body as a stream.
        scope.removeAllContentTypeParsers()
        scope.addContentTypeParser('*', (_request, body, done) => done(null, body))
        registerRoute(scope, ofPath, server, 'file')
      })
    }
  }
}

const takesFile = ({ body }: Operation): boolean =>
  body !== undefined && isRaw(body) && body.mediaType !== 'application/json'

const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'QUERY'] as const

/** Registers all operations of one path. Every other method is answered with 405 and the methods that exist. */
function registerRoute(
  app: FastifyInstance,
  ofPath: readonly Operation[],
  server: ServerContext,
  bodyKind?: FastifyContextConfig['bodyKind'],
): void {
  const [{ path, access, errorBody, bodyMaxBytes }] = ofPath as readonly [Operation]
  const url = path.replaceAll(/\{(\w+)\}/g, ':$1')
  const config: FastifyContextConfig = { access, ...(bodyKind && { bodyKind }), ...(errorBody && { errorBody }) }
  const defined = methods.filter((method) => ofPath.some((operation) => operation.method === method))
  // HEAD is answered like GET, without the body: RFC 9110, section 9.3.2.
  const isHeadOfGet = defined.includes('GET') && !defined.includes('HEAD')
  for (const { method, handler } of ofPath) {
    const served = method === 'GET' && isHeadOfGet ? ['GET', 'HEAD'] : method
    const limit = bodyMaxBytes && { bodyLimit: Math.min(bodyMaxBytes, app.initialConfig.bodyLimit ?? bodyMaxBytes) }
    app.route({ method: served, url, config, ...limit, handler: handler(server) })
  }
  const served = methods.filter((method) => defined.includes(method) || (method === 'HEAD' && isHeadOfGet))
  app.route({
    method: methods.filter((method) => !served.includes(method)),
    url,
    config: { ...config, isRefused: true },
    // Before the body is read.
    onRequest: (request, _reply, done) =>
      done(new Refusal('method_not_allowed', { method: request.method, allowed: served.join(', ') })),
    handler: async () => {},
  })
}
