import type { FastifyInstance } from 'fastify'
import type { Log } from '../observe/log.ts'
import type { Span, Tracing } from '../observe/tracing.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Set if traces are recorded. */
    span: Span | null
  }
}

/**
 * Records a span for each request, as a part of the trace of its `traceparent` header, and adds it to the log. The path is
 * that of the route: a path can contain a signed link.
 */
export function traceRequests(app: FastifyInstance, tracing: Tracing): void {
  app.decorateRequest('span', null)
  app.addHook('onRequest', (request, reply, done) => {
    const { method, headers } = request
    const route = request.routeOptions.url ?? '(none)'
    const attributes = { 'http.request.method': method, 'http.route': route, 'glovebox.request_id': request.id }
    const given = headers.traceparent
    const span = tracing.begin(
      `${method} ${route}`,
      'server',
      attributes,
      typeof given === 'string' ? given : undefined,
    )
    request.span = span
    request.log = (request.log as Log).child({ traceparent: span.traceparent })
    reply.raw.once('close', () => {
      const { statusCode, raw } = reply
      span.end({ 'http.response.status_code': statusCode }, statusCode >= 500 || !raw.writableFinished)
    })
    done()
  })
  // After the body has arrived: its events do not belong to the work of the request.
  app.addHook('preHandler', ({ span }, _reply, done) => {
    if (span) tracing.within(span, done)
    else done()
  })
}
