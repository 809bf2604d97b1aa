import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'
import type { Readable } from 'node:stream'
import { AllowedDestinations } from '../../outbound/destination.ts'
import { Outbound } from '../../outbound/outbound.ts'
import type { Surroundings } from '../surroundings.ts'
import { PackageProblem } from './problem.ts'

const redirectsMax = 5
/** Until the headers of an answer, and between two pieces of its body. */
const answerWithinMs = 30_000
/** Connections to one origin. */
const connections = 32

export interface UpstreamAnswer {
  status: number
  headers: Readonly<Record<string, string | string[] | undefined>>
  /** BOUNDARY: endless, slow, or shorter than announced. The caller reads or destroys it. */
  body: Readable
}

/**
 * The index of a package manager. The operator named its origin, which may therefore be anywhere; every other address that it
 * leads to must be https at a public address that is not one of this machine, or be allowed. Only its origin gets its credentials.
 */
export class Upstream {
  /** Ends with a slash, and has no credentials. */
  readonly base: URL
  /** Of bodies that were read; see `count`. */
  #fetchedBytes = 0
  readonly #authorization: string | undefined
  readonly #own
  readonly #others
  readonly #allowed: AllowedDestinations
  readonly #isOwnAddress: (address: string) => boolean

  /** @param allow as in `outbound_allow`. */
  constructor(address: string, allow: readonly string[], { isOwn, roots }: Pick<Surroundings, 'isOwn' | 'roots'>) {
    const url = new URL(address.endsWith('/') ? address : `${address}/`)
    const { username, password } = url
    if (username !== '' || password !== '') {
      const login = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
      this.#authorization = `Basic ${Buffer.from(login).toString('base64')}`
    }
    url.username = ''
    url.password = ''
    this.base = url
    this.#isOwnAddress = isOwn
    this.#own = new Outbound(new AllowedDestinations([hostOf(url), ...allow])).agent(connections, roots)
    this.#allowed = new AllowedDestinations(allow)
    const resolve = async (host: string) => {
      const found = (await lookup(host, { all: true, verbatim: true })).map(({ address }) => address)
      return found.filter((address) => !this.#isHere(host, address))
    }
    this.#others = new Outbound(this.#allowed, resolve).agent(connections, roots)
  }

  /**
   * Requests an address, and follows redirects. Nothing of the request of a program is sent but what `headers` contains.
   * @throws PackageProblem 502.
   */
  async get(address: URL, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<UpstreamAnswer> {
    let url = address
    for (let redirects = 0; redirects <= redirectsMax; redirects++) {
      const answer = await this.#send(url, headers, signal)
      if (![301, 302, 303, 307, 308].includes(answer.status)) return answer
      answer.body.on('error', () => undefined).destroy()
      const location = String(answer.headers.location ?? '')
      if (!URL.canParse(location, url.href)) throw this.#problem('it redirects to no address')
      url = new URL(location, url)
    }
    throw this.#problem('it redirects too often')
  }

  async #send(url: URL, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<UpstreamAnswer> {
    const isOwn = url.origin === this.base.origin
    if (!isOwn && isIP(hostOf(url)) !== 0 && this.#isHere(hostOf(url), hostOf(url)))
      throw this.#problem('it leads to this machine')
    if (url.username !== '' || url.password !== '') throw this.#problem('it leads to an address with a login')
    try {
      const {
        statusCode,
        headers: answered,
        body,
      } = await (isOwn ? this.#own : this.#others).request({
        origin: url.origin,
        path: `${url.pathname}${url.search}`,
        method: 'GET',
        headers: { ...headers, ...(isOwn && this.#authorization && { authorization: this.#authorization }) },
        headersTimeout: answerWithinMs,
        bodyTimeout: answerWithinMs,
        signal,
      })
      return { status: statusCode, headers: answered, body }
    } catch {
      throw this.#problem(
        isOwn ? 'it cannot be reached' : 'it leads to an address that cannot be reached, or is not public',
      )
    }
  }

  /** Counts bytes of a body that was read. */
  count(bytes: number): void {
    this.#fetchedBytes += bytes
  }

  get fetchedBytes(): number {
    return this.#fetchedBytes
  }

  /** Whether an address of a host belongs to this machine, without a permission for it. */
  #isHere(host: string, address: string): boolean {
    return this.#isOwnAddress(address) && !this.#allowed.name(host) && !this.#allowed.address(address)
  }

  #problem = (how: string): PackageProblem => new PackageProblem(502, `the index ${this.base.host} failed: ${how}`)

  /** Ends its connections. */
  async close(): Promise<void> {
    await Promise.all([this.#own.destroy(), this.#others.destroy()])
  }
}

const hostOf = ({ hostname }: URL): string => hostname.replace(/^\[(.*)\]$/, '$1')
