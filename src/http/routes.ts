import type { FastifyContextConfig, FastifyInstance, RouteHandlerMethod } from 'fastify'
import { Refusal } from '../base/errors.ts'
import type { Core } from '../core/core.ts'
import { Changes } from '../mcp/changes.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import { Catalog, type Inventory } from '../tools/catalog.ts'
import { adminRoutes } from './admin/routes.ts'
import { alive, ready } from './health.ts'
import { mcpEndpoint } from './mcp.ts'
import { metrics } from './metrics.ts'
import { openApi } from './openapi/serve.ts'
import { getBlob, putBlob } from './rest/blobs.ts'
import { executeCode } from './rest/execute.ts'
import { executionOutput } from './rest/execution-output.ts'
import { cancelExecution, getExecution, listExecutions } from './rest/executions.ts'
import { deleteFiles, downloadFile, listFiles, uploadFile } from './rest/files.ts'
import { deleteThread, forkThread, getThread, listThreads } from './rest/threads.ts'
import { listVolumes } from './rest/volumes.ts'

export interface HttpDeps {
  core: Core
  metrics: Metrics
  version: string
  /** Where clients reach this server; empty: wherever they say they do. */
  publicUrl: string
  log: Log
  /** What is offered and how it changes, where it is not what the product offers. */
  offers?: { inventory: Inventory; changes: Changes }
}

/** Every path there is. */
export function routes(app: FastifyInstance, rooms: HttpDeps): void {
  const closing = new AbortController()
  app.addHook('preClose', async () => closing.abort())
  const catalog = new Catalog(rooms.offers?.inventory)
  const mcp = mcpEndpoint(rooms, catalog, rooms.offers?.changes ?? new Changes(), closing.signal)

  only(app, '/healthz', { GET: alive }, { open: true })
  only(app, '/readyz', { GET: ready(rooms.core) }, { open: true })
  only(app, '/metrics', { GET: metrics(rooms.metrics, rooms.core) }, { operator: true })
  only(app, '/openapi.json', { GET: openApi(rooms.version) }, { open: true })
  only(app, '/mcp', { POST: mcp.post, GET: mcp.get, DELETE: mcp.delete })
  only(app, '/v1/sandbox/execute', { POST: executeCode(rooms.core) })
  const { publicUrl } = rooms
  only(app, '/v1/files/list', { POST: listFiles(rooms.core) })
  only(app, '/v1/files/upload', { POST: uploadFile(rooms.core, publicUrl) })
  only(app, '/v1/files/download', { POST: downloadFile(rooms.core, publicUrl) })
  only(app, '/v1/files/delete', { POST: deleteFiles(rooms.core) })
  app.register(async (scope) => {
    // The body is a file: it is handed on as it comes.
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', (_request, body, done) => done(null, body))
    const get = getBlob(rooms.core)
    only(scope, '/v1/blobs/:token', { GET: get, HEAD: get, PUT: putBlob(rooms.core) }, { open: true, sends: 'file' })
  })
  only(app, '/v1/executions', { GET: listExecutions(rooms.core) })
  only(app, '/v1/executions/:id', { GET: getExecution(rooms.core) })
  only(app, '/v1/executions/:id/output', { GET: executionOutput(rooms.core) })
  only(app, '/v1/executions/:id/cancel', { POST: cancelExecution(rooms.core) })
  only(app, '/v1/threads', { GET: listThreads(rooms.core) })
  only(app, '/v1/threads/:id', { GET: getThread(rooms.core), DELETE: deleteThread(rooms.core) })
  only(app, '/v1/threads/:id/fork', { POST: forkThread(rooms.core) })
  only(app, '/v1/volumes', { GET: listVolumes(rooms.core) })

  const tools = catalog.toolNames
  for (const [path, handlers] of Object.entries(adminRoutes(rooms.core, tools))) {
    only(app, path, handlers, { admin: true })
  }

  app.setNotFoundHandler((request) => {
    throw new Refusal('not_found', { what: request.url.split('?')[0]!.slice(0, 128) })
  })
}

type RouteConfig = Partial<Pick<FastifyContextConfig, 'open' | 'admin' | 'operator' | 'sends'>>

const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const

/** The methods named answer at a path; every other is told which. */
function only(
  app: FastifyInstance,
  url: string,
  handlers: Partial<Record<(typeof methods)[number], RouteHandlerMethod>>,
  config: RouteConfig = {},
): void {
  const served = methods.filter((method) => handlers[method])
  for (const method of served) app.route({ method, url, handler: handlers[method]!, config })
  app.route({
    method: methods.filter((method) => !handlers[method]),
    url,
    config,
    handler: async (request) => {
      throw new Refusal('method_not_allowed', { method: request.method, allowed: served.join(', ') })
    },
  })
}
