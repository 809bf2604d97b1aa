import { Refusal } from '../../base/errors.ts'
import { upstreamName } from './grants.ts'
import {
  type CredentialSettings,
  credentialPlaces,
  type OAuthRequest,
  type OAuthSettings,
  type UpstreamCredential,
} from './secrets.ts'

const headersMax = 32
export const valuesMax = 16
const secretMaxBytes = 8 * 1024
/** First parts of paths of this server. An upstream of such a vendor could not be reached. */
const reservedVendors: readonly string[] = [
  'v1',
  'api',
  'admin',
  'mcp',
  'runtime',
  'sse',
  'message',
  'preview',
  'default',
]
const headerName = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$/
/** Headers that the gateway sets itself, and headers of a single connection. */
const reservedHeaders: readonly string[] = [
  ...['host', 'connection', 'content-length', 'content-type', 'transfer-encoding', 'accept', 'accept-encoding'],
  ...['upgrade', 'te', 'trailer', 'keep-alive', 'expect', 'cookie', 'mcp-session-id', 'mcp-protocol-version'],
]

/** Checks the name of a new upstream. @throws Refusal `invalid_argument`. */
export function checkUpstreamName(name: string): void {
  if (!upstreamName.test(name)) {
    throw invalid('name', 'must be vendor/name, each 1 to 64 lower-case letters, digits, ".", "-" and "_"')
  }
  const [vendor = ''] = name.split('/')
  if (reservedVendors.includes(vendor)) {
    throw invalid('name', `must not begin with ${vendor}/, which is a path of this server`)
  }
}

/** Checks and returns the headers of an upstream. @throws Refusal `invalid_argument`. */
export function checkedHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  const entries = checkedCount('headers', Object.entries(headers), headersMax)
  for (const [name, value] of entries) {
    checkHeaderName('headers', name)
    checkSecret(`headers.${name}`, value)
  }
  return Object.fromEntries(entries)
}

/** Checks and returns a credential. @throws Refusal `invalid_argument`. */
export function checkedCredential({ in: place, name, prefix = '', values }: CredentialSettings): UpstreamCredential {
  if (!credentialPlaces.includes(place)) throw invalid('credential.in', `must be one of ${credentialPlaces.join(', ')}`)
  if (place === 'header') checkHeaderName('credential.name', name)
  else if (place === 'env') checkVariableName('credential.name', name)
  else if (!/^[A-Za-z0-9_.[\]-]{1,128}$/.test(name)) throw invalid('credential.name', 'must be the name of a parameter')
  if (place === 'body' && !name.startsWith('params.')) {
    throw invalid('credential.name', 'must be a path in the message, such as params.arguments.api_key')
  }
  if (prefix !== '') checkSecret('credential.prefix', prefix)
  for (const value of checkedCount('credential.values', values, valuesMax)) checkSecret('credential.values', value)
  return { in: place, name, prefix, values: [...values] }
}

/** Checks and returns the settings of logins. @throws Refusal `invalid_argument`. */
export function checkedOAuth({ client_id, client_secret, scope }: OAuthRequest): OAuthSettings {
  const fields = { 'oauth.client_id': client_id, 'oauth.client_secret': client_secret, 'oauth.scope': scope }
  for (const [field, value] of Object.entries(fields)) if (value !== undefined) checkSecret(field, value)
  if (client_secret !== undefined && client_id === undefined) throw invalid('oauth.client_id', 'is missing')
  return { clientId: client_id ?? null, clientSecret: client_secret ?? null, scope: scope ?? null }
}

function checkHeaderName(field: string, name: string): void {
  if (!headerName.test(name)) throw invalid(field, 'must be the name of a header')
  if (reservedHeaders.includes(name.toLowerCase())) throw invalid(field, `must not set the header ${name}`)
}

/** @throws Refusal `invalid_argument`. */
export function checkVariableName(field: string, name: string): void {
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,127}$/.test(name)) throw invalid(field, 'must be the name of a variable')
}

/** Checks that a header can contain the value: https://www.rfc-editor.org/rfc/rfc9110#section-5.5 */
export function checkSecret(field: string, value: string): void {
  if (!/^[\x20-\x7e]+$/.test(value)) throw invalid(field, 'must be printable ASCII characters')
  if (value.length > secretMaxBytes) throw invalid(field, `is longer than ${secretMaxBytes} characters`)
}

/** Checks the number of entries, and returns them. @throws Refusal `invalid_argument` if there are more than `max`. */
export function checkedCount<Item>(field: string, items: readonly Item[], max: number): readonly Item[] {
  if (items.length > max) throw invalid(field, `has ${items.length} entries; the maximum is ${max}`)
  return items
}

export const invalid = (field: string, problem: string): Refusal => new Refusal('invalid_argument', { field, problem })
