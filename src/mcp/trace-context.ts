import type { McpContext } from './handle.ts'
import { isObject, own, type Params } from './json-rpc.ts'

/** https://www.w3.org/TR/trace-context/#traceparent-header-field-values */
const traceparent = /^[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/

/**
 * Binds what a client calls its trace to everything that is logged of its request, so that both sides can be read
 * together. What is not of that form is no trace. https://modelcontextprotocol.io/seps/414-request-meta
 */
export function withTrace(context: McpContext, method: string, params: Params): McpContext {
  const meta = own(params, '_meta')
  const trace = isObject(meta) ? own(meta, 'traceparent') : undefined
  if (typeof trace !== 'string' || !traceparent.test(trace)) return context
  const log = context.log.child({ traceparent: trace })
  log.debug({ method: method.slice(0, 128) }, 'asked within a trace')
  return { ...context, log }
}
