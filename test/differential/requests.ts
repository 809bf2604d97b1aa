import fc from 'fast-check'
import type { Sent } from './servers.ts'

type Json = Record<string, unknown>

const meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': { name: 'fuzz', version: '1' },
  'io.modelcontextprotocol/clientCapabilities': {},
}
const accept = 'application/json, text/event-stream'
const json = { 'content-type': 'application/json', accept }

const id = fc.oneof(fc.integer({ min: 0, max: 1e9 }), fc.string({ minLength: 1, maxLength: 8 }))
const text = fc.oneof(fc.string({ maxLength: 20 }), fc.string({ unit: 'binary', maxLength: 8 }))
const call = fc.record({ name: fc.constant('echo'), arguments: fc.record({ text }) })
const wrongCall = fc.oneof(
  fc.record({ name: fc.constant('echo'), arguments: fc.record({ text: fc.oneof(fc.integer(), fc.constant(null)) }) }),
  fc.record({ name: fc.constant('echo'), arguments: fc.constant({}) }),
  fc.record({ name: fc.constantFrom('nope', 'Echo', '__proto__', 'constructor', ''), arguments: fc.record({ text }) }),
)

const legacyMethods: fc.Arbitrary<Json> = fc.oneof(
  fc.record({ method: fc.constantFrom('ping', 'tools/list') }),
  fc.record({ method: fc.constant('tools/call'), params: fc.oneof(call, call, wrongCall) }),
  fc.record({
    method: fc.constant('initialize'),
    params: fc.record({
      protocolVersion: fc.constantFrom('2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25', '2023-01-01'),
      capabilities: fc.constant({}),
      clientInfo: fc.constant({ name: 'fuzz', version: '1' }),
    }),
  }),
  fc.record({
    method: fc.constant('logging/setLevel'),
    params: fc.record({ level: fc.constantFrom('info', 'error') }),
  }),
  fc.record({ method: fc.constantFrom('tools/unknown', 'prompts/list', 'resources/list', 'x', 'server/discover') }),
)

/** Valid requests of the versions up to 2025-11-25. */
export const legacyRequest: fc.Arbitrary<{ headers: Json; message: Json }> = fc
  .tuple(id, legacyMethods, fc.constantFrom(undefined, '2025-11-25', '2025-06-18', '2025-03-26'))
  .map(([requestId, rest, version]) => ({
    headers: { ...json, ...(version && rest.method !== 'initialize' && { 'mcp-protocol-version': version }) },
    message: { jsonrpc: '2.0', id: requestId, ...rest },
  }))

const modernMethods: fc.Arbitrary<Json> = fc.oneof(
  fc.record({ method: fc.constantFrom('tools/list', 'server/discover'), params: fc.constant({}) }),
  fc.record({ method: fc.constant('tools/call'), params: fc.oneof(call, call, wrongCall) }),
  fc.record({
    method: fc.constantFrom('ping', 'initialize', 'logging/setLevel', 'prompts/list', 'tasks/list', 'x'),
    params: fc.constant({}),
  }),
)

/** Valid requests of 2026-07-28. */
export const modernRequest: fc.Arbitrary<{ headers: Json; message: Json }> = fc
  .tuple(id, modernMethods)
  .map(([requestId, { method, params }]) => ({
    headers: {
      ...json,
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': String(method),
      ...(typeof (params as Json).name === 'string' && { 'mcp-name': String((params as Json).name) }),
    },
    message: { jsonrpc: '2.0', id: requestId, method, params: { ...(params as Json), _meta: meta } },
  }))

/** A mistake that a client can make. */
type Damage = (request: { headers: Json; message: Json }) => { headers: Json; message: unknown }

const without = (object: unknown, key: string): Json =>
  Object.fromEntries(Object.entries((object ?? {}) as Json).filter(([name]) => name !== key))
const inMeta =
  (change: (meta: Json) => unknown): Damage =>
  ({ headers, message }) => ({
    headers,
    message: {
      ...message,
      params: { ...(message.params as Json), _meta: change(((message.params as Json)?._meta ?? {}) as Json) },
    },
  })
const inHeaders =
  (change: (headers: Json) => Json): Damage =>
  ({ headers, message }) => ({ headers: change(headers), message })
const inMessage =
  (change: (message: Json) => unknown): Damage =>
  ({ headers, message }) => ({ headers, message: change(message) })

export const damages: Readonly<Record<string, Damage>> = {
  'no jsonrpc': inMessage((message) => without(message, 'jsonrpc')),
  'jsonrpc 1.0': inMessage((message) => ({ ...message, jsonrpc: '1.0' })),
  'no method': inMessage((message) => without(message, 'method')),
  'method is a number': inMessage((message) => ({ ...message, method: 7 })),
  'params is a list': inMessage((message) => ({ ...message, params: [1] })),
  'params is a word': inMessage((message) => ({ ...message, params: 'x' })),
  'id is null': inMessage((message) => ({ ...message, id: null })),
  'id is an object': inMessage((message) => ({ ...message, id: {} })),
  'a notification': inMessage((message) => without(message, 'id')),
  'a batch': inMessage((message) => [message]),
  'an empty batch': inMessage(() => []),
  'a word': inMessage(() => 'hello'),
  null: inMessage(() => null),
  'a response': inMessage(({ id: answered }) => ({ jsonrpc: '2.0', id: answered, result: {} })),
  'no version header': inHeaders((headers) => without(headers, 'mcp-protocol-version')),
  'an unknown version header': inHeaders((headers) => ({ ...headers, 'mcp-protocol-version': '1999-01-01' })),
  'a future version header': inHeaders((headers) => ({ ...headers, 'mcp-protocol-version': '2031-01-01' })),
  'no method header': inHeaders((headers) => without(headers, 'mcp-method')),
  'another method header': inHeaders((headers) => ({ ...headers, 'mcp-method': 'tools/other' })),
  'no name header': inHeaders((headers) => without(headers, 'mcp-name')),
  'another name header': inHeaders((headers) => ({ ...headers, 'mcp-name': 'other' })),
  'a session id': inHeaders((headers) => ({ ...headers, 'mcp-session-id': 'abc' })),
  'no meta': inMessage((message) => ({ ...message, params: without(message.params, '_meta') })),
  'meta is a word': inMeta(() => 'x'),
  'no version in meta': inMeta((all) => without(all, 'io.modelcontextprotocol/protocolVersion')),
  'no capabilities in meta': inMeta((all) => without(all, 'io.modelcontextprotocol/clientCapabilities')),
  'no client info in meta': inMeta((all) => without(all, 'io.modelcontextprotocol/clientInfo')),
  'another version in meta': inMeta((all) => ({ ...all, 'io.modelcontextprotocol/protocolVersion': '2030-01-01' })),
  'an old version in meta': inMeta((all) => ({ ...all, 'io.modelcontextprotocol/protocolVersion': '2025-11-25' })),
  'a wrong log level in meta': inMeta((all) => ({ ...all, 'io.modelcontextprotocol/logLevel': 'loud' })),
}

export const toSent = ({ headers, message }: { headers: Json; message: unknown }): Sent => ({
  headers: headers as Record<string, string>,
  body: JSON.stringify(message),
})
