import type { FastifyInstance, RouteHandlerMethod } from 'fastify'
import { Refusal } from '../base/errors.ts'
import type { Core } from '../core/core.ts'
import { Calls } from '../mcp/calls.ts'
import type { Log } from '../observe/log.ts'
import { Catalog } from '../tools/catalog.ts'
import { alive, ready } from './health.ts'
import { mcp } from './mcp.ts'
import { executeCode } from './rest/execute.ts'
import { cancelExecution } from './rest/executions.ts'

export interface HttpRooms {
  core: Core
  version: string
  log: Log
}

/** Every path there is. */
export function routes(app: FastifyInstance, rooms: HttpRooms): void {
  const catalog = new Catalog()
  const calls = new Calls()

  only(app, 'GET', '/healthz', alive, { open: true })
  only(app, 'GET', '/readyz', ready(rooms.core), { open: true })
  only(app, 'POST', '/mcp', mcp(rooms, catalog, calls))
  only(app, 'POST', '/v1/sandbox/execute', executeCode(rooms.core))
  only(app, 'POST', '/v1/executions/:id/cancel', cancelExecution(rooms.core))

  app.setNotFoundHandler((request) => {
    throw new Refusal('not_found', { what: request.url.split('?')[0]!.slice(0, 128) })
  })
}

const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const

/** One method answers at a path; every other is told which. */
function only(
  app: FastifyInstance,
  method: 'GET' | 'POST',
  url: string,
  handler: RouteHandlerMethod,
  config: { open?: boolean } = {},
): void {
  app.route({ method, url, handler, config })
  app.route({
    method: methods.filter((other) => other !== method),
    url,
    config,
    handler: async (request) => {
      throw new Refusal('method_not_allowed', { method: request.method, allowed: method })
    },
  })
}
