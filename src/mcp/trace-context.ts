import type { McpContext } from './handle.ts'
import { isObject, own, type Params } from './json-rpc/message.ts'

/** https://www.w3.org/TR/trace-context/#traceparent-header-field-values */
const traceparent = /^[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/

/**
 * Adds the client's `traceparent` to the log of its request. Ignores a value that is not valid.
 * https://modelcontextprotocol.io/seps/414-request-meta
 */
export function withTraceContext(context: McpContext, method: string, params: Params): McpContext {
  const meta = own(params, '_meta')
  const trace = isObject(meta) ? own(meta, 'traceparent') : undefined
  if (typeof trace !== 'string' || !traceparent.test(trace)) return context
  const log = context.log.child({ traceparent: trace })
  log.debug({ method: method.slice(0, 128) }, 'request with trace context')
  return { ...context, log }
}
