import { isLoginCookie } from '../console/logins.ts'
import type { Forwarded } from '../forwarded.ts'
import type { Place } from './place.ts'

/** Header lines as Node has them: name, value, name, value. */
export type RawHeaders = readonly string[]

/** Holds the grant of a browser, on the origin of a preview. */
export const grantCookie = 'glovebox_preview'

/** About one connection and not about the message: https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1 */
const hopByHop = [
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization', 'te', 'trailer'],
  ...['transfer-encoding', 'upgrade', 'http2-settings'],
]
/** What says how the client reached the server is ours to say. */
const replaced = /^(?:host|expect|forwarded|via|x-forwarded-.*|x-real-ip|x-api-key)$/
/** They act on more than the response: on the whole origin, on names around it, or on later requests. */
const originWide = [
  ...[
    'service-worker-allowed',
    'clear-site-data',
    'strict-transport-security',
    'public-key-pins',
    'expect-ct',
    'alt-svc',
  ],
  ...['nel', 'report-to', 'reporting-endpoints', 'origin-agent-cluster', 'accept-ch', 'critical-ch', 'set-login'],
]
/** Of a page that shares its origin with this server: browsers would apply these to the server. */
const ofOrigin = [
  'set-cookie',
  'set-cookie2',
  'www-authenticate',
  'access-control-allow-credentials',
  'access-control-allow-origin',
]

/** A page with it has an origin of its own that is equal to no other. Without `allow-same-origin`. */
export const sandboxPolicy =
  'sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads allow-pointer-lock'

/**
 * The headers of a request for the program. Never a credential of this server.
 * @param isUpgrade keeps the protocol that the client asks for.
 */
export function requestHeaders(
  raw: RawHeaders,
  place: Place,
  { address, protocol, host, prefix }: Forwarded,
  { port, isUpgrade, isForKeys }: { port: number; isUpgrade: boolean; isForKeys: boolean },
): string[] {
  const named = nominated(raw)
  const headers = ['Host', `localhost:${port}`]
  let upgrade = ''
  let isChunked = false
  for (const [name, value] of pairs(raw)) {
    const lower = name.toLowerCase()
    if (lower === 'upgrade') upgrade = value
    // The length of the body is not known, so it needs its own framing again, with every method.
    if (lower === 'transfer-encoding') isChunked = true
    if (hopByHop.includes(lower) || named.has(lower) || replaced.test(lower)) continue
    if (lower === 'authorization' && (isForKeys || isOurs(value, place))) continue
    if (lower !== 'cookie') headers.push(name, value)
    else if (place.form === 'host' && cookiesOf(value) !== '') headers.push(name, cookiesOf(value))
  }
  headers.push('X-Forwarded-For', address, 'X-Forwarded-Proto', protocol, 'X-Forwarded-Host', host)
  if (place.form === 'path') headers.push('X-Forwarded-Prefix', prefix + place.prefix)
  if (isChunked) headers.push('Transfer-Encoding', 'chunked')
  if (isUpgrade) headers.push('Connection', 'Upgrade', 'Upgrade', upgrade)
  else headers.push('Connection', 'close')
  return headers
}

/** The headers of a response for the client. Nothing in them reaches beyond the preview. */
export function responseHeaders(raw: RawHeaders, place: Place, port: number, isUpgrade: boolean): string[] {
  const named = nominated(raw)
  const headers: string[] = []
  for (const [name, value] of pairs(raw)) {
    const lower = name.toLowerCase()
    const isOfUpgrade = isUpgrade && (lower === 'upgrade' || lower === 'connection')
    if (!isOfUpgrade && (hopByHop.includes(lower) || named.has(lower))) continue
    if (originWide.includes(lower) || (place.form === 'path' && ofOrigin.includes(lower))) continue
    if (lower === 'set-cookie') headers.push(...toHostCookie(name, value))
    else headers.push(name, lower === 'location' ? locationOf(value, place, port) : value)
  }
  if (place.form === 'path') headers.push(...pathHeaders)
  headers.push('X-Robots-Tag', 'noindex')
  return headers
}

/** For every response below a path of this server. Its pages have no origin, so even their own fetches are those of others. */
export const pathHeaders: RawHeaders = [
  ...['Content-Security-Policy', sandboxPolicy, 'Access-Control-Allow-Origin', '*', 'Referrer-Policy', 'no-referrer'],
  ...['X-Content-Type-Options', 'nosniff'],
]

/** Cookies of one name that are looked at. */
const grantsMax = 8

/**
 * Returns the values of the cookies with a grant. There can be several: a page of another preview can set one for the domain
 * that they share, which browsers send first.
 */
export const grantsIn = (cookies = ''): string[] =>
  cookies
    .split(';')
    .map((one) => one.trim().split('='))
    .filter(([name]) => name === grantCookie)
    .map(([, value = '']) => value)
    .slice(0, grantsMax)

function* pairs(raw: RawHeaders): Generator<readonly [string, string]> {
  for (let at = 0; at + 1 < raw.length; at += 2) yield [raw[at]!, raw[at + 1]!]
}

/** Names of headers that `Connection` declares as hop-by-hop. */
function nominated(raw: RawHeaders): Set<string> {
  const names = new Set<string>()
  for (const [name, value] of pairs(raw))
    if (name.toLowerCase() === 'connection') for (const one of value.split(',')) names.add(one.trim().toLowerCase())
  // What frames the body is not up to the sender.
  for (const kept of ['content-length', 'host']) names.delete(kept)
  return names
}

/** Whether a credential is one of this server, or one that a browser sends to its origin by itself. */
const isOurs = (authorization: string, { form }: Place): boolean =>
  /^Bearer +(?:sk-[a-z0-9-]+-[\w-]{40,}|gba_\S*)\s*$/i.test(authorization) ||
  (form === 'path' && !/^Bearer /i.test(authorization))

const cookiesOf = (value: string): string =>
  value
    .split(';')
    .map((one) => one.trim())
    .filter((one) => one !== '' && !isOurCookie(one))
    .join('; ')

const isOurCookie = (pair: string): boolean => {
  const name = pair.split('=')[0]!.trim()
  return name === grantCookie || isLoginCookie(name)
}

/** A cookie for this host name alone: one for the domain would reach the other previews. */
function toHostCookie(name: string, value: string): string[] {
  const [pair = '', ...attributes] = value.split(';')
  if (isOurCookie(pair)) return []
  return [name, [pair, ...attributes.filter((one) => !/^\s*domain\s*(?:=|$)/i.test(one))].join(';')]
}

/** Redirects to the program itself stay in its preview. */
function locationOf(value: string, { prefix }: Place, port: number): string {
  const own = new RegExp(`^https?://(?:localhost|127\\.0\\.0\\.1|\\[::1\\]):${port}(?=[/?#]|$)`, 'i')
  const path = value.replace(own, '')
  if (path !== value) return prefix + (path.startsWith('/') ? path : `/${path}`)
  return value.startsWith('/') && !/^\/[/\\]/.test(value) ? prefix + value : value
}
