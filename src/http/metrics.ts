import type { RouteHandlerMethod } from 'fastify'
import type { Core } from '../core/core.ts'
import type { Metrics } from '../observe/metrics.ts'

/** What Prometheus reads; https://prometheus.io/docs/instrumenting/exposition_formats/ */
export const metrics =
  (all: Metrics, core: Core): RouteHandlerMethod =>
  async (_request, reply) => {
    const text = await all.text(await core.figures())
    return reply.code(200).header('content-type', all.contentType).send(text)
  }
