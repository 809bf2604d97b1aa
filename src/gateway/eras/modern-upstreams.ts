import { randomUUID } from 'node:crypto'
import { Readable } from 'node:stream'
import { LRUCache } from 'lru-cache'
import { bodyOf, type UpstreamAnswer } from '../exchange.ts'
import { UpstreamProblem } from '../failures.ts'
import { tryParse } from '../message.ts'
import {
  accepted,
  type Json,
  legacyVersion,
  metaKey,
  modernVersion,
  type RpcMessage,
  respond,
  resultOf,
  type SendMessage,
  translated,
  versionUnsupported,
} from './messages.ts'

/** Maximum number of upstreams whose versions are known. */
const knownMax = 1_000
/** An upstream that was updated is tried with the older versions again after this time. */
const knownMs = 10 * 60_000

/** A message of a client, and who has sent it. */
interface Sent {
  message: unknown
  /** The session of the client, if it has one. */
  sessionId: string | undefined
  keyId: string
  signal: AbortSignal
}

/** Lets clients of the versions up to 2025-11-25 use upstreams that only speak 2026-07-28. */
export class ModernUpstreams {
  readonly #modernOnly = new LRUCache<string, true>({ max: knownMax, ttl: knownMs })
  readonly #clientInfo: object
  /** Requests in progress that can be cancelled, by key, session and ID. */
  readonly #cancellable = new Map<string, AbortController>()

  /** @param version of this server, which upstreams receive. */
  constructor(version: string) {
    this.#clientInfo = { name: 'glovebox', version }
  }

  /** Returns whether messages of older clients to the upstream must be translated. @param id of the upstream. */
  has(id: string): boolean {
    return this.#modernOnly.has(id)
  }

  /** Reads why an upstream has refused a message of an older client. @returns whether it must be translated. */
  learn(id: string, refused: Buffer): boolean {
    const { error } = (tryParse(refused) ?? {}) as { error?: { code?: unknown; data?: { supported?: unknown } } }
    const supported = error?.data?.supported
    const isModern =
      error?.code === versionUnsupported && Array.isArray(supported) && supported.every((one) => one >= modernVersion)
    if (isModern) this.#modernOnly.set(id, true)
    return isModern
  }

  /** Sends a message of an older client in the form of the newer version. @throws UpstreamProblem. */
  async send(sent: Sent, send: SendMessage): Promise<UpstreamAnswer> {
    const { message } = sent
    if (typeof message !== 'object' || message === null || Array.isArray(message)) return accepted()
    const { id, method, params = {} } = message as RpcMessage
    // Cancelling is disconnecting. The newer version has no other notifications of clients and no requests of servers.
    if (method === 'notifications/cancelled') this.#cancellable.get(nameOf(sent, params.requestId))?.abort()
    if (typeof method !== 'string' || id === undefined) return accepted()
    switch (method) {
      case 'ping':
      case 'logging/setLevel':
        return respond(id, { result: {} })
      case 'initialize':
        // The session only identifies the client, so that it can cancel its requests.
        return respond(
          id,
          { result: await this.#initialized(params, send) },
          { 'mcp-session-id': `gb-${randomUUID()}` },
        )
      default:
        return this.#request(sent, { id, method, params }, send)
    }
  }

  async #initialized({ protocolVersion }: Json, send: SendMessage): Promise<Json> {
    const answer = await this.#post({ id: 0, method: 'server/discover', params: {} }, send)
    const discovered = await resultOf(answer, 0)
    if (discovered === undefined) throw new UpstreamProblem('it does not describe itself')
    const { capabilities = {}, instructions, _meta } = discovered
    return {
      protocolVersion:
        typeof protocolVersion === 'string' && protocolVersion < modernVersion ? protocolVersion : legacyVersion,
      capabilities,
      serverInfo: (_meta as Json | undefined)?.[metaKey('serverInfo')] ?? { name: 'upstream', version: modernVersion },
      ...(instructions !== undefined && { instructions }),
    }
  }

  /** Sends a request that the client can cancel. */
  async #request(
    sent: Sent,
    request: { id: unknown; method: string; params: Json },
    send: SendMessage,
  ): Promise<UpstreamAnswer> {
    const name = nameOf(sent, request.id)
    const cancelling = new AbortController()
    if (sent.sessionId !== undefined) this.#cancellable.set(name, cancelling)
    const forget = () => {
      if (this.#cancellable.get(name) === cancelling) this.#cancellable.delete(name)
    }
    try {
      const answer = await this.#post(request, send, AbortSignal.any([sent.signal, cancelling.signal]))
      // In the versions of the client, an error of the protocol is no error of HTTP.
      if (answer.status === 400 || answer.status === 404) return asRpcError(request.id, await bodyOf(answer), answer)
      const reply = translated(answer, (message) => toLegacy(request.id, message))
      reply.body.once('close', forget)
      return reply
    } catch (error) {
      forget()
      if (cancelling.signal.aborted) return accepted()
      throw error
    }
  }

  #post(
    { id, method, params }: { id: unknown; method: string; params: Json },
    send: SendMessage,
    signal?: AbortSignal,
  ): Promise<UpstreamAnswer> {
    const _meta = {
      ...(params._meta as Json | undefined),
      [metaKey('protocolVersion')]: modernVersion,
      [metaKey('clientInfo')]: this.#clientInfo,
      // Declares nothing, so that the upstream does not ask for input that could not be passed on.
      [metaKey('clientCapabilities')]: {},
    }
    const name = method === 'resources/read' ? params.uri : params.name
    return send(
      { jsonrpc: '2.0', id, method, params: { ...params, _meta } },
      {
        ...{ 'mcp-protocol-version': modernVersion, 'mcp-method': method },
        ...(typeof name === 'string' && { 'mcp-name': headerValue(name) }),
      },
      signal,
    )
  }
}

const nameOf = ({ keyId, sessionId }: Sent, id: unknown): string => JSON.stringify([keyId, sessionId, id])

/** A result that asks for input has no meaning in the older versions. */
function toLegacy(id: unknown, message: RpcMessage): RpcMessage {
  if (message.result?.resultType !== 'input_required') return message
  const error = {
    code: -32603,
    message: 'The upstream asks for input, which this gateway cannot request from the client.',
  }
  return { jsonrpc: '2.0', id, error }
}

function asRpcError(id: unknown, body: Buffer, answer: UpstreamAnswer): UpstreamAnswer {
  const { error } = (tryParse(body) ?? {}) as RpcMessage
  if (typeof error === 'object') return respond(id, { error })
  return { ...answer, body: Readable.from([body]) }
}

/** Encodes a value that HTTP cannot carry: https://modelcontextprotocol.io/seps/2243-http-standardization */
const headerValue = (value: string): string =>
  /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !value.startsWith('=?')
    ? value
    : `=?base64?${Buffer.from(value).toString('base64')}?=`
