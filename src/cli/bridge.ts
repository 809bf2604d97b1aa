import { randomBytes } from 'node:crypto'
import { escapeLineBreaks, isExact, parseExact } from '../base/json.ts'
import { type MirroredArgument, mirroredIn } from '../tools/tool.ts'
import { readServerEvents } from './server-events.ts'

type Json = Readonly<Record<string, unknown>>

const claimKey = 'io.modelcontextprotocol/protocolVersion'
/** The JSON-RPC code of a failure in transport: https://www.jsonrpc.org/specification#error_object */
const internalError = -32603

/** Forwards the messages of one client from lines to HTTP, and the answers back, in either era of the protocol. */
export class Bridge {
  readonly #endpoint: URL
  readonly #key: string | undefined
  readonly #write: (line: string) => Promise<void>
  readonly #running = new Map<string, AbortController>()
  readonly #listening = new Set<AbortController>()
  readonly #pending = new Set<Promise<void>>()
  readonly #mirrored = new Map<string, readonly MirroredArgument[]>()
  /** Makes request ids unique: other programs with the same key use the same numbers, and a cancellation names an id. */
  readonly #prefix = randomBytes(6).toString('base64url')
  readonly #stop = Promise.withResolvers<void>()
  readonly stopped: Promise<void> = this.#stop.promise
  #version: string | undefined
  #lastWrite: Promise<void> = Promise.resolve()
  /** Legacy requests wait for the answer to `initialize`, which contains the version that their header must name. */
  #initialized: Promise<void> = Promise.resolve()

  /** @param write writes one line; resolves when the next one can be written. */
  constructor(endpoint: URL, key: string | undefined, write: (line: string) => Promise<void>) {
    this.#endpoint = endpoint
    this.#key = key
    this.#write = write
  }

  /** Receives one line of the client. Answers are written as they arrive. */
  take(line: string): void {
    let message: unknown
    try {
      message = parseExact(line)
    } catch {
      this.#fail(null, -32700, 'The line is not valid JSON.')
      return
    }
    const before = this.#initialized
    const work = isObject(message) ? this.#forward(message, before) : before.then(() => this.#send(line, {}, 'batch'))
    if (isObject(message) && message.method === 'initialize') this.#initialized = work.catch(() => {})
    const pending = work.catch((error: unknown) => this.#fail(idOf(message), internalError, reasonOf(error)))
    this.#pending.add(pending)
    void pending.finally(() => this.#pending.delete(pending))
  }

  /** Resolves when every request received so far has its answer. Ends subscriptions, which have none. */
  async settled(): Promise<void> {
    for (const controller of this.#listening) controller.abort()
    while (this.#pending.size > 0) await Promise.all(this.#pending)
    await this.#lastWrite
  }

  /** Aborts every request. */
  stop(): void {
    for (const controller of this.#running.values()) controller.abort()
    this.#stop.resolve()
  }

  async #forward(message: Json, before: Promise<void>): Promise<void> {
    const { method } = message
    const isModern = isObject(message.params) && isObject(message.params._meta) && claimKey in message.params._meta
    if (method === 'notifications/cancelled') {
      const { requestId } = isObject(message.params) ? message.params : {}
      const running = this.#running.get(JSON.stringify(requestId))
      // Since 2026-07-28 a disconnect cancels a request; before, only this notification does.
      if (running && this.#version === undefined) return running.abort()
      const params = { ...(message.params as object), requestId: this.#rename(requestId) }
      await before
      return this.#send(JSON.stringify({ ...message, params }), this.#legacyHeaders(), undefined)
    }
    if (isModern) return this.#exchange(message, JSON.stringify(message), this.#modernHeaders(message), idOf(message))
    await before
    const id = idOf(message)
    const renamed = id === null || method === undefined ? message : { ...message, id: this.#rename(id) }
    return this.#exchange(message, JSON.stringify(renamed), this.#legacyHeaders(), id)
  }

  async #exchange(message: Json, body: string, headers: Record<string, string>, id: unknown): Promise<void> {
    const name = JSON.stringify(id)
    const controller = new AbortController()
    if (id !== null) this.#running.set(name, controller)
    if (message.method === 'subscriptions/listen') this.#listening.add(controller)
    try {
      await this.#send(body, headers, message.method, id, controller.signal)
    } catch (error) {
      if (!controller.signal.aborted) throw error
    } finally {
      this.#listening.delete(controller)
      if (this.#running.get(name) === controller) this.#running.delete(name)
    }
  }

  async #send(
    body: string,
    headers: Record<string, string>,
    method: unknown,
    id: unknown = null,
    signal?: AbortSignal,
  ): Promise<void> {
    const response = await fetch(this.#endpoint, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...(this.#key !== undefined && { authorization: `Bearer ${this.#key}` }),
        ...headers,
      },
      body,
      ...(signal && { signal }),
    })
    if (response.body === null) return
    if (response.headers.get('content-type')?.startsWith('text/event-stream')) {
      for await (const data of readServerEvents(response.body)) this.#deliver(parseExact(data), method, id)
      return
    }
    const text = await response.text()
    if (text !== '') this.#deliverBody(response.status, text, method, id)
  }

  /** Delivers a JSON body. One that is not JSON-RPC, such as a refused key, becomes an error of the request. */
  #deliverBody(status: number, text: string, method: unknown, id: unknown): void {
    const body = parse(text)
    if (Array.isArray(body) || (isObject(body) && body.jsonrpc === '2.0')) {
      this.#deliver(body, method, id)
      return
    }
    const reason = isObject(body) && typeof body.message === 'string' ? body.message : text.slice(0, 200)
    if (id !== null) this.#fail(id, internalError, `The server answered with status ${status}: ${reason}`)
  }

  #deliver(message: unknown, method: unknown, id: unknown): void {
    if (!isObject(message)) {
      this.#line(JSON.stringify(message))
      return
    }
    const isAnswer = message.method === undefined
    if (isAnswer && isObject(message.result)) this.#learn(method, message.result)
    // Replaces the unique id by the one that the client sent.
    const own = isAnswer && id !== null ? { ...message, id } : message
    this.#line(JSON.stringify(own))
  }

  /** Remembers what later requests need: the negotiated version, and which arguments are mirrored as headers. */
  #learn(method: unknown, result: Json): void {
    if (method === 'initialize' && typeof result.protocolVersion === 'string') this.#version = result.protocolVersion
    if (method !== 'tools/list' || !Array.isArray(result.tools)) return
    for (const tool of result.tools as Json[]) {
      if (typeof tool.name === 'string' && isObject(tool.inputSchema)) {
        this.#mirrored.set(tool.name, mirroredIn(tool.inputSchema, []))
      }
    }
  }

  #legacyHeaders(): Record<string, string> {
    return this.#version === undefined ? {} : { 'mcp-protocol-version': this.#version }
  }

  #modernHeaders({ method, params }: Json): Record<string, string> {
    const given = params as Json
    const name = given.name ?? given.uri ?? given.taskId
    return {
      'mcp-protocol-version': headerValue((given._meta as Json)[claimKey]),
      'mcp-method': headerValue(method),
      ...(typeof name === 'string' && { 'mcp-name': headerValue(name) }),
      ...(method === 'tools/call' && this.#mirroredHeaders(given)),
    }
  }

  #mirroredHeaders({ name, arguments: given }: Json): Record<string, string> {
    const mirrored = this.#mirrored.get(String(name)) ?? []
    return Object.fromEntries(
      mirrored.flatMap(({ path, header }) => {
        const value = path.reduce<unknown>((object, key) => (isObject(object) ? object[key] : undefined), given)
        return value === undefined || value === null ? [] : [[`mcp-param-${header}`, headerValue(value)]]
      }),
    )
  }

  #rename(id: unknown): string {
    return `${this.#prefix}:${JSON.stringify(id)}`
  }

  #fail(id: unknown, code: number, message: string): void {
    this.#line(JSON.stringify({ jsonrpc: '2.0', id, error: { code, message } }))
  }

  #line(text: string): void {
    this.#lastWrite = this.#lastWrite.then(() => this.#write(escapeLineBreaks(text)))
  }
}

/** Encodes a value as base64 where it contains characters that a header cannot: https://modelcontextprotocol.io/seps/2243-http-standardization */
function headerValue(value: unknown): string {
  const text = String(value)
  const plain = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !text.startsWith('=?base64?')
  return plain ? text : `=?base64?${Buffer.from(text, 'utf8').toString('base64')}?=`
}

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !isExact(value)

const idOf = (message: unknown): unknown => (isObject(message) ? (message.id ?? null) : null)

function parse(text: string): unknown {
  try {
    return parseExact(text)
  } catch {
    return undefined
  }
}

function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error
  return `The server cannot be reached: ${cause instanceof Error ? cause.message : String(cause)}`
}
