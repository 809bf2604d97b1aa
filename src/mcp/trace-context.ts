import { isTraceparent } from '../observe/tracing.ts'
import type { McpContext } from './handle.ts'
import { isObject, own, type Params } from './json-rpc/message.ts'

/**
 * Adds the client's `traceparent` to the log of its request, which becomes a part of this trace unless a header named
 * another one. Ignores a value that is not valid.
 * https://modelcontextprotocol.io/seps/414-request-meta
 */
export function withTraceContext(context: McpContext, method: string, params: Params): McpContext {
  const meta = own(params, '_meta')
  const trace = isObject(meta) ? own(meta, 'traceparent') : undefined
  if (typeof trace !== 'string' || !isTraceparent(trace)) return context
  context.core.tracing?.current?.continueFrom(trace)
  const log = context.log.child({ traceparent: trace })
  log.debug({ method: method.slice(0, 128) }, 'request with trace context')
  return { ...context, log }
}
