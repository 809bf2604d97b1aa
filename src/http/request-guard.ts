import type { IncomingMessage } from 'node:http'
import { Refusal } from '../base/errors.ts'

/** What `admit` looks at. */
type Arrived = Pick<IncomingMessage, 'method' | 'headers' | 'rawHeaders'>

export interface GuardRules {
  /** Whether requests need no key. */
  dev: boolean
  /**
   * Names served besides loopback: `name` on any port, or `name:port`. Without dev mode an empty list is every name: what
   * a page of another name could reach there, it could not use without a key.
   */
  allowedHosts: readonly string[]
  /** Web origins that may call, such as `https://app.example`. */
  allowedOrigins: readonly string[]
}

/**
 * BOUNDARY: what every request must show before any route sees it. A server on loopback can be reached by every web
 * page its user visits; these three checks keep pages out:
 * - Host: a page whose own name was made to resolve to loopback (DNS rebinding) still sends that name.
 * - Origin and Sec-Fetch-Site: browsers add them to what a page sends, and pages can't change them.
 * - JSON content type: what a form or a "simple" request can't send without asking first.
 *
 * @returns what looks at a request and at the port on which it arrived, and gives the refusal, or nothing when it may pass.
 */
export function door(rules: GuardRules): (arrived: Arrived, port: number) => Refusal | undefined {
  // Nearly every request of a server comes under the same name, which need not be taken apart each time.
  let served: { host: string; port: number } | undefined
  const serves = (host: string, port: number): boolean => {
    if (served?.host === host && served.port === port) return true
    if (!isServed(host, port, rules)) return false
    served = { host, port }
    return true
  }
  return (arrived, port) => admit(arrived, port, rules, serves)
}

function admit(
  { method = '', headers, rawHeaders }: Arrived,
  port: number,
  rules: GuardRules,
  serves: (host: string, port: number) => boolean,
): Refusal | undefined {
  // Of two names Node reads the first and a proxy before it perhaps the second.
  if (countOf('host', rawHeaders) > 1)
    return new Refusal('invalid_request', { problem: 'it has more than one Host header' })
  const host = headers.host?.toLowerCase() ?? ''
  if (!serves(host, port)) return new Refusal('host_not_allowed', { host: shown(host) })
  const { origin } = headers
  // A page that was served here, under the name just checked, is ours.
  const isOwn = origin?.toLowerCase() === `http://${host}`
  const originAllowed = origin !== undefined && (isOwn || rules.allowedOrigins.includes(origin))
  if (origin !== undefined && !originAllowed) return new Refusal('origin_not_allowed', { origin: shown(origin) })
  const site = headers['sec-fetch-site']
  if (site !== undefined && site !== 'none' && site !== 'same-origin' && !originAllowed) {
    return new Refusal('origin_not_allowed', { origin: shown(`Sec-Fetch-Site: ${site}`) })
  }
  if (method === 'POST' && !isJson(headers['content-type'])) return new Refusal('wrong_content_type')
  return undefined
}

function countOf(name: string, rawHeaders: readonly string[]): number {
  let count = 0
  for (let at = 0; at < rawHeaders.length; at += 2)
    if (rawHeaders[at]?.length === name.length && rawHeaders[at]?.toLowerCase() === name) count++
  return count
}

const loopbackNames = ['localhost', '127.0.0.1', '[::1]']
const defaultPort = 80

function isServed(host: string, port: number, { dev, allowedHosts }: GuardRules): boolean {
  if (!dev && allowedHosts.length === 0) return true
  const { name, port: asked } = splitHost(host)
  if (loopbackNames.includes(name) && (asked ?? defaultPort) === port) return true
  return allowedHosts.some((allowed) => allowed.toLowerCase() === name || allowed.toLowerCase() === host)
}

/** `[::1]:80` and `name:80` in their parts; what is neither matches no name. */
function splitHost(host: string): { name: string; port: number | undefined } {
  const [, name, port] = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?$/.exec(host) ?? []
  return { name: name ?? '', port: port === undefined ? undefined : Number(port) }
}

function isJson(contentType: string | undefined): boolean {
  if (contentType === 'application/json') return true
  const [essence, ...parameters] = (contentType ?? '')
    .toLowerCase()
    .split(';')
    .map((part) => part.trim())
  if (essence !== 'application/json') return false
  return parameters.every((parameter) => !parameter.startsWith('charset=') || /^charset="?utf-?8"?$/.test(parameter))
}

/** Safe to repeat in an answer and a log. */
const shown = (value: string): string =>
  value === '' ? '(none)' : value.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 128)
