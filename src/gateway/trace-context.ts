/** Traces that calls of upstreams are part of: https://www.w3.org/TR/trace-context/ */
import { isTraceparent, type Span, type Tracing } from '../observe/tracing.ts'
import type { RelayRequest } from './exchange.ts'
import type { RpcMessage } from './rpc-channel.ts'

export const traceHeaders = ['traceparent', 'tracestate'] as const

export type TraceContext = { [Name in (typeof traceHeaders)[number]]?: string }

/** Returns the headers that make a request to an upstream a part of the trace of this one. */
export const traceOf = ({ headers }: RelayRequest): TraceContext =>
  Object.fromEntries(traceHeaders.flatMap((name) => (typeof headers[name] === 'string' ? [[name, headers[name]]] : [])))

/** Begins the span of a call of an upstream. The request becomes a part of the trace in `_meta` unless a header named another one. */
export function beginCall(tracing: Tracing, upstream: string, message: unknown): Span {
  const { traceparent } = metaOf(message) ?? {}
  if (typeof traceparent === 'string') tracing.current?.continueFrom(traceparent)
  return tracing.begin(`upstream ${upstream}`, 'client', { 'glovebox.upstream': upstream })
}

/** Makes a request a part of a span. */
export const partOf = (span: Span, request: RelayRequest): RelayRequest => ({
  ...request,
  headers: { ...request.headers, traceparent: span.traceparent },
})

/**
 * Makes a message a part of a trace. Standard streams have no headers, so its `_meta` names the trace:
 * https://modelcontextprotocol.io/seps/414-request-meta
 * @returns the message as it is if the trace is unknown or invalid, or the message is a response.
 */
export function withTrace(message: RpcMessage, { traceparent, tracestate }: TraceContext): RpcMessage {
  const given = metaOf(message)
  if (message.method === undefined || given === undefined) return message
  if (traceparent === undefined || !isTraceparent(traceparent)) return message
  const { traceparent: other, tracestate: ofOther, ...meta } = given
  // A state belongs to its trace.
  const state = tracestate ?? (traceIdOf(other) === traceIdOf(traceparent) ? ofOther : undefined)
  const _meta = { ...meta, traceparent, ...(state !== undefined && { tracestate: state }) }
  return { ...message, params: { ...message.params, _meta } }
}

/** Returns `_meta` of a message; empty if it has none, `undefined` if it cannot have one. */
function metaOf(message: unknown): Record<string, unknown> | undefined {
  if (!isRecord(message)) return undefined
  const { params = {} } = message
  if (!isRecord(params)) return undefined
  const { _meta = {} } = params
  return isRecord(_meta) ? _meta : undefined
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const traceIdOf = (traceparent: unknown): string | undefined =>
  typeof traceparent === 'string' ? traceparent.split('-')[1] : undefined
