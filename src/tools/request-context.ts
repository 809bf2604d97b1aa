import { Refusal } from '../base/errors.ts'
import type { Core } from '../core/core.ts'

/** What a server may ask its client for while it answers: https://modelcontextprotocol.io/specification/2026-07-28/client */
export type InputRequest =
  | { method: 'elicitation/create'; params: Readonly<Record<string, unknown>> }
  | { method: 'sampling/createMessage'; params: Readonly<Record<string, unknown>> }
  | { method: 'roots/list'; params: Readonly<Record<string, unknown>> }

/** By a name that the asking tool chooses; it never means two things in one call. */
export type InputRequests = Readonly<Record<string, InputRequest>>
export type InputResponses = Readonly<Record<string, Readonly<Record<string, unknown>>>>

/** Severities of RFC 5424, mildest first. */
export const logLevels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'] as const
export type LogLevel = (typeof logLevels)[number]

/** What the client of a call says it can do. */
export class ClientCapabilities {
  readonly #declared: Readonly<Record<string, unknown>>

  constructor(declared: Readonly<Record<string, unknown>>) {
    this.#declared = declared
  }

  has(capability: 'elicitation' | 'sampling' | 'roots'): boolean {
    return isObject(this.#own(this.#declared, capability))
  }

  hasExtension(extension: string): boolean {
    const extensions = this.#own(this.#declared, 'extensions')
    return isObject(extensions) && isObject(this.#own(extensions, extension))
  }

  /** @throws Refusal `capability_missing` when an answer to one of these can't be expected of this client. */
  require(requests: InputRequests): void {
    for (const { method } of Object.values(requests)) {
      const capability = capabilityFor[method]
      if (!this.has(capability)) throw new Refusal('capability_missing', { capability })
    }
  }

  #own(value: Readonly<Record<string, unknown>>, name: string): unknown {
    return Object.hasOwn(value, name) ? value[name] : undefined
  }
}

const capabilityFor = {
  'elicitation/create': 'elicitation',
  'sampling/createMessage': 'sampling',
  'roots/list': 'roots',
} as const satisfies Record<InputRequest['method'], string>

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Ends a call whose answers come with a later one: the client asks its user, then calls again and the tool starts anew. */
export class InputNeeded extends Error {
  readonly requests: InputRequests

  constructor(requests: InputRequests) {
    super('input is needed')
    this.name = 'InputNeeded'
    this.requests = requests
  }
}

/** What every answer can make use of, whatever protocol the client speaks. */
export interface RequestContext {
  core: Core
  /** Where the client reaches this server, without a slash at its end. */
  baseUrl: string
  /** The connection of a client that keeps one; absent where each request stands alone. */
  connectionId?: string
  /** Aborts when the request is cancelled; the answer is then no longer read. */
  signal: AbortSignal
  client: ClientCapabilities
  /**
   * Asks the client, and through it its user. Where the protocol has no way to ask in between, this throws
   * `InputNeeded`, and the tool is called again from its beginning with the answers: so ask before there are effects.
   * @throws Refusal `capability_missing`.
   */
  ask(requests: InputRequests): Promise<InputResponses>
  /** Sends a log message to the client if it requested this level. */
  log(level: LogLevel, data: unknown): Promise<void>
}
