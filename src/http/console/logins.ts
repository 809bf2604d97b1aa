import { hash, randomBytes } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'

/** A login that is not used ends after this time, and every login after the second one. */
const idleMs = 30 * 60_000
const lifetimeMs = 12 * 60 * 60_000
/** Logins at the same time; the oldest one ends first. */
const loginsMax = 1_000
const loginsOfTokenMax = 16

/** Methods that change nothing: RFC 9110, section 9.2.1. */
const safeMethods: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])

/** A browser that is logged in with an admin token. It does not keep the token, and neither does the server. */
export interface Login {
  readonly tokenId: string
  readonly tokenHash: string
  /** Sent with each request that changes something; other sites cannot read it. */
  readonly csrfToken: string
  readonly startedMs: number
  usedMs: number
  hasEnded: boolean
}

/** The logins of browsers, in memory: they end with the process, and with their token. */
export class Logins {
  /** By the hash of the value of the cookie, oldest first. */
  readonly #open = new Map<string, Login>()

  /** @returns the value of the cookie, which is not kept, and the login. */
  begin(tokenId: string, token: string): { secret: string; login: Login } {
    const secret = randomBytes(32).toString('base64url')
    const nowMs = monotonicMs()
    const login: Login = {
      ...{ tokenId, tokenHash: hash('sha256', token), csrfToken: randomBytes(32).toString('base64url') },
      ...{ startedMs: nowMs, usedMs: nowMs, hasEnded: false },
    }
    this.#forget(nowMs)
    const ofToken = [...this.#open].filter(([, other]) => other.tokenId === tokenId)
    if (ofToken.length >= loginsOfTokenMax) this.#end(ofToken[0]![0])
    if (this.#open.size >= loginsMax) this.#end(this.#open.keys().next().value!)
    this.#open.set(hash('sha256', secret), login)
    return { secret, login }
  }

  /**
   * Finds the login of a request.
   * @returns `undefined` without a cookie of a login.
   * @throws Refusal `login_expired`; `csrf_token_missing` for a request that changes something without the CSRF token.
   */
  find(headers: IncomingHttpHeaders, method: string): Login | undefined {
    const secret = loginCookieIn(headers.cookie)
    if (secret === undefined) return undefined
    const nowMs = monotonicMs()
    this.#forget(nowMs)
    const login = this.#open.get(hash('sha256', secret))
    if (login === undefined) throw new Refusal('login_expired')
    // Compared by hash: how long the comparison takes does not depend on the token.
    const given = headers['x-csrf-token']
    const isSame = typeof given === 'string' && hash('sha256', given) === hash('sha256', login.csrfToken)
    if (!safeMethods.has(method) && !isSame) throw new Refusal('csrf_token_missing')
    login.usedMs = nowMs
    return login
  }

  /** Ends the login of a request. */
  end(headers: IncomingHttpHeaders): void {
    const secret = loginCookieIn(headers.cookie)
    if (secret !== undefined) this.#end(hash('sha256', secret))
  }

  #end(key: string): void {
    const login = this.#open.get(key)
    if (login) login.hasEnded = true
    this.#open.delete(key)
  }

  #forget(nowMs: number): void {
    for (const [key, { startedMs, usedMs }] of this.#open)
      if (nowMs - usedMs >= idleMs || nowMs - startedMs >= lifetimeMs) this.#end(key)
  }
}

/** The name of the cookie: over TLS, browsers accept one with this prefix from this host alone, and for all paths. */
const names = { https: '__Host-glovebox-login', http: 'glovebox-login' } as const

/**
 * Returns the header that sets the cookie. Scripts cannot read it, and requests that other sites cause do not carry it.
 * @param secret `undefined` removes it.
 */
export function loginCookie(protocol: 'http' | 'https', secret: string | undefined): string {
  const attributes = ['Path=/', 'HttpOnly', 'SameSite=Strict', ...(protocol === 'https' ? ['Secure'] : [])]
  const age = secret === undefined ? 0 : lifetimeMs / 1000
  return [`${names[protocol]}=${secret ?? ''}`, ...attributes, `Max-Age=${age}`].join('; ')
}

/** Whether a cookie is that of a login, which no program behind this server may receive. */
export const isLoginCookie = (name: string): boolean => name === names.https || name === names.http

export const hasLoginCookie = ({ cookie }: IncomingHttpHeaders): boolean => loginCookieIn(cookie) !== undefined

function loginCookieIn(cookies: string | undefined): string | undefined {
  const pairs = (cookies ?? '').split(';').map((one) => one.trim().split('='))
  const of = (wanted: string) => pairs.find(([name]) => name === wanted)?.[1] || undefined
  return of(names.https) ?? of(names.http)
}
