import type { RouteHandlerMethod } from 'fastify'
import type { Core } from '../core/core.ts'
import { sendJson } from './answer.ts'

/** The process answers. */
export const alive: RouteHandlerMethod = async (_request, reply) => sendJson(reply, 200, '{"status":"alive"}')

/** 200 only while a run could start. */
export const ready =
  (core: Core): RouteHandlerMethod =>
  async (_request, reply) => {
    const { readiness } = core
    if (readiness.ready) return sendJson(reply, 200, '{"status":"ready"}')
    return sendJson(reply, 503, JSON.stringify({ status: 'not_ready', reason: readiness.reason }))
  }
