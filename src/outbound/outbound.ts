import { lookup as systemLookup } from 'node:dns/promises'
import { request as plainRequest } from 'node:http'
import { request as secureRequest } from 'node:https'
import { isIP } from 'node:net'
import { Refusal } from '../base/errors.ts'
import { type AllowedDestinations, requireAllowed, toDestination } from './destination.ts'

/** All addresses of a name, now. */
export type Resolve = (host: string) => Promise<readonly string[]>

/** More addresses than this are not a host. */
const addressesMax = 64
/** Of an answer; nothing is done with it. */
const answerLimitBytes = 1_024

export interface OutboundPost {
  url: string
  headers: Readonly<Record<string, string>>
  body: string
  /** For all of it, from the look-up of the name to the head of the answer. */
  timeoutMs: number
  signal: AbortSignal
}

/**
 * Makes connections to where clients say, and to nowhere that they must not reach: a name is looked up once, every
 * address that it has is checked, and the connection goes to the one that was checked. Nothing is followed.
 */
export class Outbound {
  readonly #allowed: AllowedDestinations
  readonly #resolve: Resolve

  constructor(allowed: AllowedDestinations, resolve: Resolve = resolveBySystem) {
    this.#allowed = allowed
    this.#resolve = resolve
  }

  /** @returns the host that it goes to. @throws Refusal where it can be said without asking anyone. */
  check(field: string, url: string): string {
    return toDestination(field, url, this.#allowed).host
  }

  /**
   * Posts once.
   * @returns the status of the answer.
   * @throws Refusal `destination_refused`, `invalid_argument`; Error where nobody answers in time.
   */
  async post({ url: text, headers, body, timeoutMs, signal }: OutboundPost): Promise<number> {
    const destination = toDestination('url', text, this.#allowed)
    const { host, url, port } = destination
    const ends = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)])
    const addresses = isIP(host) ? [host] : await before(ends, this.#resolve(host))
    if (addresses.length === 0 || addresses.length > addressesMax) throw new Error('the name has no usable address')
    requireAllowed(destination, addresses, this.#allowed)
    const address = addresses[0]!
    const request = url.protocol === 'https:' ? secureRequest : plainRequest
    return new Promise((resolve, reject) => {
      const sent = request(
        {
          // The address that was checked; the name stays in the Host header and in the certificate that is asked for.
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
          let readBytes = 0
          answer.on('data', (piece: Buffer) => {
            readBytes += piece.length
            if (readBytes >= answerLimitBytes) answer.destroy()
          })
          // The status is all that matters: what becomes of the rest, however slowly it comes, changes nothing.
          answer.on('error', () => {})
          answer.on('close', () => resolve(answer.statusCode ?? 0))
        },
      )
      sent.on('error', reject)
      sent.end(body)
    })
  }
}

async function resolveBySystem(host: string): Promise<readonly string[]> {
  return (await systemLookup(host, { all: true, verbatim: true })).map(({ address }) => address)
}

/** What comes, unless the signal is first. */
async function before<T>(signal: AbortSignal, coming: Promise<T>): Promise<T> {
  coming.catch(() => {})
  signal.throwIfAborted()
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason as Error)
    signal.addEventListener('abort', abort, { once: true })
    coming.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}

/** Why a try failed, fit to be told to whoever gave the address. */
export function problemOf(error: unknown): string {
  if (error instanceof Refusal) return error.message
  const { name, code } = error as NodeJS.ErrnoException
  if (name === 'TimeoutError' || (error as Error).cause instanceof DOMException) return 'It did not answer in time.'
  return code === undefined ? 'It could not be reached.' : `It could not be reached (${code}).`
}
