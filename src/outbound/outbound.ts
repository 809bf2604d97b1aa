import { lookup as systemLookup } from 'node:dns/promises'
import { request as plainRequest } from 'node:http'
import { request as secureRequest } from 'node:https'
import { isIP } from 'node:net'
import type { Agent } from 'undici'
import { Refusal } from '../base/errors.ts'
import { type AllowedDestinations, notPublic, requireAllowed, toDestination } from './destination.ts'
import { guardedAgent } from './guarded-agent.ts'

/** Resolves a host name to all of its current addresses. */
export type Resolve = (host: string) => Promise<readonly string[]>

/** Names with more addresses are rejected. */
const addressesMax = 64
/** Connections to one origin. */
const connectionsDefault = 256
/** Maximum number of response bytes that are read; they are discarded. */
const answerLimitBytes = 1_024

export interface OutboundPost {
  url: string
  headers: Readonly<Record<string, string>>
  body: string
  /** Total time from the name resolution to the response headers. */
  timeoutMs: number
  signal: AbortSignal
}

/**
 * Connects to addresses that clients specify, with protection against server-side request forgery: a name is resolved
 * once, all of its addresses are checked, and the connection uses a checked address. Redirects are not followed.
 */
export class Outbound {
  readonly #allowed: AllowedDestinations
  readonly #resolve: Resolve

  constructor(allowed: AllowedDestinations, resolve: Resolve = resolveBySystem) {
    this.#allowed = allowed
    this.#resolve = resolve
  }

  /** Checks an address without resolving its name. @returns its host. @throws Refusal `destination_refused`. */
  check(field: string, url: string): string {
    return toDestination(field, url, this.#allowed).host
  }

  /**
   * Creates a pool of connections that only reach the same addresses. The caller closes it.
   * @param roots authorities whose certificates are accepted, in PEM; by default those of Node.js.
   */
  agent(connections: number = connectionsDefault, roots?: readonly string[]): Agent {
    return guardedAgent(this.#allowed, (host) => this.#addressesOf(host), connections, roots)
  }

  /**
   * Resolves a name. One that does not exist is refused like one with an internal address: a client must not learn which
   * names the internal network has.
   */
  async #addressesOf(host: string): Promise<readonly string[]> {
    let addresses: readonly string[] = []
    try {
      addresses = await this.#resolve(host)
    } catch (error) {
      if (this.#allowed.name(host)) throw error
    }
    if (addresses.length === 0 || addresses.length > addressesMax) throw notPublic(host)
    return addresses
  }

  /**
   * Sends one POST request.
   * @returns the status of the response.
   * @throws Refusal `destination_refused`, `invalid_argument`; Error if there is no response in time.
   */
  async post({ url: text, headers, body, timeoutMs, signal }: OutboundPost): Promise<number> {
    const destination = toDestination('url', text, this.#allowed)
    const { host, url, port } = destination
    const ends = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)])
    const addresses = isIP(host) ? [host] : await before(ends, this.#addressesOf(host))
    requireAllowed(destination, addresses, this.#allowed)
    const address = addresses[0]!
    const request = url.protocol === 'https:' ? secureRequest : plainRequest
    let isAnswered = false
    return new Promise((resolve, reject) => {
      const sent = request(
        {
          // The checked address; the name is used in the Host header and for the certificate.
          host: address,
          port,
          path: `${url.pathname}${url.search}`,
          method: 'POST',
          headers: { ...headers, host: url.host, 'content-length': Buffer.byteLength(body) },
          ...(url.protocol === 'https:' && { servername: isIP(host) ? '' : host }),
          agent: false,
          signal: ends,
          maxHeaderSize: 16 * 1024,
        },
        (answer) => {
          isAnswered = true
          let readBytes = 0
          answer.on('data', (piece: Buffer) => {
            readBytes += piece.length
            if (readBytes >= answerLimitBytes) answer.destroy()
          })
          // Only the status is used, so errors in the rest of the response are ignored.
          answer.on('error', () => {})
          answer.on('close', () => resolve(answer.statusCode ?? 0))
        },
      )
      // A server that switches protocols has answered; the connection is not used further.
      sent.on('upgrade', (answer, socket) => {
        socket.destroy()
        resolve(answer.statusCode ?? 0)
      })
      sent.on('error', reject)
      // Every request settles, whatever Node makes of the answer. One that was answered settles with its answer.
      sent.on('close', () => {
        if (!isAnswered) reject(new Error('the connection was closed without an answer'))
      })
      sent.end(body)
    })
  }
}

async function resolveBySystem(host: string): Promise<readonly string[]> {
  return (await systemLookup(host, { all: true, verbatim: true })).map(({ address }) => address)
}

/** Awaits a promise, or rejects when the signal aborts first. */
async function before<T>(signal: AbortSignal, coming: Promise<T>): Promise<T> {
  coming.catch(() => {})
  signal.throwIfAborted()
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason as Error)
    signal.addEventListener('abort', abort, { once: true })
    coming.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}

/** Returns why a request failed, without internal details, for the client that specified the address. */
export function problemOf(error: unknown): string {
  if (error instanceof Refusal) return error.message
  const { name, code } = error as NodeJS.ErrnoException
  if (name === 'TimeoutError' || (error as Error).cause instanceof DOMException) return 'It did not answer in time.'
  return code === undefined ? 'It could not be reached.' : `It could not be reached (${code}).`
}
