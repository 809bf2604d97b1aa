/**
 * A model server on loopback that follows a script instead of thinking: it calls the tools that a test names, and records
 * what each call gave it back. One server speaks the protocols of all clients (./wires.ts).
 */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import { wires } from './wires.ts'

/** A call that the model makes. @property tool the name that our server gave to it; clients add a prefix. */
export interface ToolCall {
  tool: string
  arguments: Record<string, unknown>
}

export type Part = { type: 'text'; text: string } | { type: 'image'; mimeType: string; data: string }

/** What the model received as the result of one call. */
export interface Received {
  /** Whether the client told the model that the call failed; `undefined` if its protocol cannot. */
  isError?: boolean
  /** Whether a library raised an exception with this text, which a program has to catch. */
  thrown?: boolean
  parts: readonly Part[]
}

export interface Conversation {
  /** The names of the tools that the client offers to the model. */
  tools: readonly string[]
  /** The results of all calls so far, in the order of the calls. */
  results: readonly Received[]
}

/** What the model says next: calls, or text that ends its turn. */
export type Reply = { calls: readonly ToolCall[] } | { text: string }

/** The protocol between a client and its model. */
export interface Wire {
  /** Matches the path of a request for a reply. */
  path: RegExp
  read(body: unknown): Conversation
  /** @returns the body of the answer, which is a stream of events unless the request asks for none. */
  write(reply: Reply, conversation: Conversation, body: unknown): { contentType: string; body: string }
}

export class ScriptedModel {
  readonly #server = createServer((request, response) => void this.#answer(request, response))
  #script: readonly (readonly ToolCall[])[] = []
  #last: Conversation = { tools: [], results: [] }
  /** Requests for other addresses, which a client sent to this server as its proxy: none should exist. */
  readonly outbound: string[] = []

  static async open(): Promise<ScriptedModel> {
    const model = new ScriptedModel()
    model.#server.on('connect', (request, socket) => {
      model.outbound.push(request.url ?? '')
      socket.on('error', () => undefined)
      socket.end('HTTP/1.1 403 Forbidden\r\n\r\n')
    })
    model.#server.listen(0, '127.0.0.1')
    await once(model.#server, 'listening')
    return model
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** Starts a script. @param turns the calls of each turn; after the last one the model says that it is done. */
  follow(turns: readonly (readonly ToolCall[])[]): void {
    this.#script = turns
    this.#last = { tools: [], results: [] }
  }

  /** What the model received since {@link follow}. */
  get conversation(): Conversation {
    return this.#last
  }

  async close(): Promise<void> {
    this.#server.close()
    this.#server.closeAllConnections()
    await once(this.#server, 'close')
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = request.url ?? ''
    if (!url.startsWith('/')) this.outbound.push(url)
    const wire = wires.find(({ path }) => path.test(url))
    if (wire === undefined || request.method !== 'POST') {
      response.writeHead(404, { 'content-type': 'application/json' }).end('{"error":{"message":"not found"}}')
      return
    }
    const body = await json(request)
    const conversation = wire.read(body)
    const answer = wire.write(this.#reply(conversation), conversation, body)
    response.writeHead(200, { 'content-type': answer.contentType }).end(answer.body)
  }

  /** Clients also ask without tools, for example for a title of the conversation. */
  #reply(conversation: Conversation): Reply {
    if (conversation.tools.length === 0) return { text: 'done' }
    this.#last = conversation
    let before = 0
    for (const calls of this.#script) {
      if (before === conversation.results.length && calls.every((call) => offeredName(conversation, call)))
        return { calls }
      before += calls.length
    }
    return { text: 'done' }
  }
}

/** The name under which a client offers a tool; `undefined` if it does not offer it. */
export const offeredName = ({ tools }: Conversation, { tool }: ToolCall): string | undefined =>
  tools.find((offered) => offered === tool || offered.endsWith(`_${tool}`) || offered.endsWith(`.${tool}`))
