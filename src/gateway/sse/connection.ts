import type { PassThrough, Readable } from 'node:stream'
import { createParser } from 'eventsource-parser'
import type { Agent } from 'undici'
import { parseForeignJson, TooManyValues } from '../../base/json.ts'
import { joinSmallPieces } from '../../base/small-pieces.ts'
import type { UpstreamConnection } from '../connector.ts'
import { UpstreamProblem } from '../failures.ts'
import { RpcChannel, type RpcMessage } from '../rpc-channel.ts'

/** Maximum size of one event of an upstream. */
export const eventMaxBytes = 8 * 1024 * 1024
/** Maximum time to open a stream, and from its beginning to the address for messages. */
const endpointMs = 10_000
const noSession = 'The client of this gateway opened no session, so it cannot be asked.'

/** How to authenticate one request of a connection. */
export interface Authorization {
  headers: Record<string, string>
  /** Headers that make the request a part of a trace. */
  trace?: Record<string, string>
  /** Adds the credential to an address, if it is sent there. */
  inQuery(url: URL): URL
}

/** The stream of a connection was refused, with this status. */
export class StreamRefused extends Error {
  readonly status: number

  constructor(status: number) {
    super(`the stream was refused with status ${status}`)
    this.status = status
  }
}

/**
 * A connection to an upstream with the HTTP+SSE transport: messages to the upstream are POST requests, and everything from
 * it arrives on one stream. https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse
 */
export class SseConnection implements UpstreamConnection<Authorization> {
  readonly #agent: Agent
  readonly #stream: Readable
  readonly #endpoint: URL
  readonly #channel: RpcChannel
  #authorization: Authorization
  /** Called once when the connection has ended. */
  onEnd: () => void = () => {}

  private constructor(
    agent: Agent,
    stream: Readable,
    endpoint: URL,
    { authorization, refusesRequests }: { authorization: Authorization; refusesRequests: boolean },
  ) {
    this.#agent = agent
    this.#stream = stream
    this.#endpoint = endpoint
    this.#authorization = authorization
    this.#channel = new RpcChannel(refusesRequests ? { refusal: noSession } : {})
  }

  /**
   * Opens the stream, and waits for the address that the upstream receives messages at.
   * @param refusesRequests whether requests of the upstream to the client are refused, since no client can answer them.
   * @throws StreamRefused, UpstreamProblem, and errors of the connection.
   */
  static async open(
    agent: Agent,
    url: URL,
    { authorization, refusesRequests }: { authorization: Authorization; refusesRequests: boolean },
  ): Promise<SseConnection> {
    const at = authorization.inQuery(url)
    const { statusCode, headers, body } = await openStream(agent, at, authorization)
    body.on('error', () => {})
    if (statusCode !== 200 || !String(headers['content-type']).startsWith('text/event-stream')) {
      body.destroy()
      throw new StreamRefused(statusCode)
    }
    const { promise, resolve } = Promise.withResolvers<string | undefined>()
    let connection: SseConnection | undefined
    const early: string[] = []
    let earlyBytes = 0
    void readEvents(body, ({ type, data }) => {
      if (type === 'endpoint') resolve(data)
      else if (connection !== undefined) connection.#receive(data)
      else {
        early.push(data)
        earlyBytes += data.length
        if (earlyBytes > eventMaxBytes) body.destroy()
      }
    }).then((problem) => {
      resolve(undefined)
      if (connection !== undefined) connection.#end(problem)
    })
    const timer = setTimeout(() => resolve(undefined), endpointMs)
    const named = await promise
    const address = named === undefined ? null : URL.parse(named, url.href)
    clearTimeout(timer)
    // BOUNDARY: the credential would be sent to any address that the upstream names.
    if (address === null || address.origin !== url.origin) {
      body.destroy()
      throw new UpstreamProblem('it named no address for messages at its own origin')
    }
    connection = new SseConnection(agent, body, address, { authorization, refusesRequests })
    for (const data of early) connection.#receive(data)
    return connection
  }

  get hasEnded(): boolean {
    return this.#channel.problem !== undefined
  }

  get isBusy(): boolean {
    return this.#channel.isBusy
  }

  /** See `RpcChannel`. @throws StreamRefused with the status of the upstream; UpstreamProblem. */
  request(message: RpcMessage, authorization: Authorization, signal: AbortSignal): Promise<PassThrough> {
    return this.#channel.request(message, (sent) => this.#post(sent, authorization), signal)
  }

  /** See `RpcChannel`. @throws as `request`. */
  notify(message: RpcMessage, authorization: Authorization): Promise<void> {
    return this.#channel.notify(message, (sent) => this.#post(sent, authorization))
  }

  listen(): PassThrough {
    return this.#channel.listen()
  }

  close(): void {
    this.#stream.destroy()
    this.#end(new UpstreamProblem('its session has ended'))
  }

  async #post(message: object, authorization: Authorization): Promise<void> {
    const { headers, inQuery, trace } = authorization
    // What is sent later with it, a refusal of a request of the upstream, is no part of this trace.
    this.#authorization = { headers, inQuery }
    const at = inQuery(new URL(this.#endpoint))
    const { statusCode, body } = await this.#agent.request({
      ...{ origin: at.origin, path: `${at.pathname}${at.search}`, method: 'POST', body: JSON.stringify(message) },
      headers: { 'content-type': 'application/json', 'user-agent': 'glovebox', ...trace, ...headers },
    })
    await body.dump({ limit: 64 * 1024 })
    if (statusCode < 200 || statusCode >= 300) throw new StreamRefused(statusCode)
  }

  #receive(data: string): void {
    let message: RpcMessage
    try {
      message = parseForeignJson(data) as RpcMessage
    } catch (error) {
      if (!(error instanceof TooManyValues)) return
      this.#stream.destroy()
      this.#end(new UpstreamProblem(`it sent a message that cannot be read: ${error.message}`))
      return
    }
    this.#channel.receive(message, (sent) => this.#post(sent, this.#authorization))
  }

  #end(problem: Error): void {
    if (this.hasEnded) return
    this.#channel.end(problem)
    this.onEnd()
  }
}

/** @throws UpstreamProblem if the response does not begin in time. */
async function openStream(agent: Agent, at: URL, { headers }: Authorization) {
  // A signal ends the stream too, so it must not abort once the response has begun.
  const opening = new AbortController()
  const timer = setTimeout(() => opening.abort(new UpstreamProblem('it opened no stream')), endpointMs)
  try {
    const answer = await agent.request({
      ...{ origin: at.origin, path: `${at.pathname}${at.search}`, method: 'GET', bodyTimeout: 0, headersTimeout: 0 },
      headers: { accept: 'text/event-stream', 'user-agent': 'glovebox', ...headers },
      signal: opening.signal,
    })
    joinSmallPieces(answer.body)
    return answer
  } finally {
    clearTimeout(timer)
  }
}

/** Calls `onEvent` for each event of a stream. @returns why the stream has ended. */
async function readEvents(
  stream: Readable,
  onEvent: (event: { type: string; data: string }) => void,
): Promise<UpstreamProblem> {
  const decoder = new TextDecoder()
  let bytes = 0
  const parser = createParser({
    onEvent: ({ event = 'message', data }) => {
      bytes = 0
      onEvent({ type: event, data })
    },
    onComment: () => {
      bytes = 0
    },
  })
  try {
    for await (const piece of stream as AsyncIterable<Uint8Array>) {
      bytes += piece.length
      parser.feed(decoder.decode(piece, { stream: true }))
      if (bytes > eventMaxBytes) return new UpstreamProblem(`it sent an event of more than ${eventMaxBytes} bytes`)
    }
  } catch {
    // The end of a connection and its failure have the same effect.
  } finally {
    stream.destroy()
  }
  return new UpstreamProblem('it closed its stream')
}
