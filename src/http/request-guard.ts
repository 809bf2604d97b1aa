import type { IncomingMessage } from 'node:http'
import { parse as parseContentType } from 'content-type'
import { Refusal } from '../base/errors.ts'

type Head = Pick<IncomingMessage, 'headers' | 'rawHeaders'> & Partial<Pick<IncomingMessage, 'method' | 'url'>>

export interface GuardRules {
  /** Whether requests need no key. */
  dev: boolean
  /**
   * Host names accepted besides loopback: `name` on any port, or `name:port`. Outside development mode an empty list
   * accepts every name: a page of another name cannot call the server without a key.
   */
  allowedHosts: readonly string[]
  /** Web origins that may call, such as `https://app.example`. */
  allowedOrigins: readonly string[]
  /** Absent without TLS: then pages of this server have http origins, or https ones behind a trusted proxy. */
  tls?: object | undefined
  trustedProxies?: readonly string[]
}

/**
 * BOUNDARY: checks every request before any route sees it. Every web page that a user visits can reach a server on
 * loopback; these checks, with `checkContentType`, keep pages out:
 * - Host: a page whose own name resolves to loopback (DNS rebinding) still sends that name.
 * - Origin and Sec-Fetch-Site: browsers add them to requests of a page, and the page cannot change them.
 *
 * @returns a function that takes the head of a request and returns the refusal, or `undefined` where the request may pass.
 */
export function requestGuard(rules: GuardRules): (head: Head) => Refusal | undefined {
  // Nearly all requests have the same Host header, which need not be parsed each time.
  let last: string | undefined
  const isKnownHost = (host: string): boolean => {
    if (last === host) return true
    if (!isServed(host, rules)) return false
    last = host
    return true
  }
  return (head) => checkHead(head, rules, isKnownHost)
}

function checkHead(
  { headers, rawHeaders, method, url }: Head,
  rules: GuardRules,
  isKnownHost: (host: string) => boolean,
): Refusal | undefined {
  // Of two Host headers Node reads the first; a proxy in front may have read the second.
  if (countOf('host', rawHeaders) > 1)
    return new Refusal('invalid_request', { problem: 'it has more than one Host header' })
  const host = headers.host?.toLowerCase() ?? ''
  if (!isKnownHost(host)) return new Refusal('host_not_allowed', { host: printable(host) })
  const { origin } = headers
  // A page that this server itself served, under the name just checked.
  const own = origin?.toLowerCase()
  const isOwn = own === `http://${host}` ? rules.tls === undefined : own === `https://${host}` && mayBeHttps(rules)
  const originAllowed = origin !== undefined && (isOwn || rules.allowedOrigins.includes(origin))
  if (origin !== undefined && !originAllowed) return new Refusal('origin_not_allowed', { origin: printable(origin) })
  const site = headers['sec-fetch-site']
  if (
    site !== undefined &&
    site !== 'none' &&
    site !== 'same-origin' &&
    !originAllowed &&
    !isDownload({ headers, method, url }) &&
    !isVisit({ headers, method, url })
  ) {
    return new Refusal('origin_not_allowed', { origin: printable(`Sec-Fetch-Site: ${site}`) })
  }
  return undefined
}

/**
 * Whether a user follows a signed link from a web page. The page cannot read the response, and the browser saves the file
 * instead of showing it: https://developer.mozilla.org/docs/Web/HTTP/Headers/Sec-Fetch-Mode
 */
const isDownload = ({ headers, method, url }: Pick<Head, 'headers' | 'method' | 'url'>): boolean =>
  method === 'GET' &&
  url?.startsWith(blobPath) === true &&
  headers['sec-fetch-mode'] === 'navigate' &&
  (headers['sec-fetch-dest'] ?? 'document') === 'document'

/** Whether a user follows a link to a page of this server. The pages show nothing that needs a key and allow no frames. */
const isVisit = ({ headers, method, url }: Pick<Head, 'headers' | 'method' | 'url'>): boolean =>
  method === 'GET' &&
  (url === '/' || url === '/console') &&
  headers['sec-fetch-mode'] === 'navigate' &&
  headers['sec-fetch-dest'] === 'document'

const mayBeHttps = ({ tls, trustedProxies = [] }: GuardRules): boolean => tls !== undefined || trustedProxies.length > 0

/** Path of signed links. */
const blobPath = '/v1/blobs/'

/**
 * BOUNDARY: requires JSON in UTF-8 for every POST. Browsers send it to another origin only after a preflight request:
 * https://fetch.spec.whatwg.org/#cors-safelisted-request-header
 * @returns the refusal, or `undefined` where the request may pass.
 */
export const checkContentType = (method: string, contentType: string | undefined): Refusal | undefined =>
  method !== 'POST' || isJson(contentType) ? undefined : new Refusal('wrong_content_type')

function countOf(name: string, rawHeaders: readonly string[]): number {
  let count = 0
  for (let at = 0; at < rawHeaders.length; at += 2)
    if (rawHeaders[at]?.length === name.length && rawHeaders[at]?.toLowerCase() === name) count++
  return count
}

const loopbackNames = ['localhost', '127.0.0.1', '[::1]']

function isServed(host: string, { dev, allowedHosts }: GuardRules): boolean {
  if (!dev && allowedHosts.length === 0) return true
  const name = nameOf(host)
  // The port is free: a tunnel or a container maps another one. What a page could send is refused by its Origin.
  if (loopbackNames.includes(name)) return true
  const written = host.replace(/\.(?=:|$)/, '')
  return allowedHosts.some((allowed) => allowed.toLowerCase() === name || allowed.toLowerCase() === written)
}

/** Returns the name in `[::1]:80`, `name:80` or `name.:80`; anything else has an empty name, which matches nothing. */
const nameOf = (host: string): string =>
  /^(\[[0-9a-f:.]+\]|[a-z0-9._-]*[a-z0-9_-])\.?(?::\d{1,5})?$/.exec(host)?.[1] ?? ''

function isJson(contentType = ''): boolean {
  if (contentType === 'application/json') return true
  const { type, parameters } = parseContentType(contentType)
  return type === 'application/json' && /^utf-?8$/i.test(parameters.charset ?? 'utf-8')
}

/** Makes a header value safe to repeat in a response and a log. */
const printable = (value: string): string =>
  value === '' ? '(none)' : value.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 128)
