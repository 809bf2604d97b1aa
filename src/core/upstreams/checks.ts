import { Refusal } from '../../base/errors.ts'
import { upstreamName } from './grants.ts'
import { type CredentialSettings, credentialPlaces, type UpstreamCredential } from './secrets.ts'

const headersMax = 32
const valuesMax = 16
const secretMaxBytes = 8 * 1024
/** Names of the paths of our own doors, which would shadow an upstream of this vendor. */
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
/** Headers that the gateway sets itself, or that belong to one connection. */
const reservedHeaders: readonly string[] = [
  ...['host', 'connection', 'content-length', 'content-type', 'transfer-encoding', 'accept', 'accept-encoding'],
  ...['upgrade', 'te', 'trailer', 'keep-alive', 'expect', 'cookie', 'mcp-session-id', 'mcp-protocol-version'],
]

/** @throws Refusal `invalid_argument`. */
export function checkUpstreamName(name: string): void {
  if (!upstreamName.test(name)) {
    throw invalid('name', 'must be vendor/name, each 1 to 64 lower-case letters, digits, ".", "-" and "_"')
  }
  const [vendor = ''] = name.split('/')
  if (reservedVendors.includes(vendor)) {
    throw invalid('name', `must not begin with ${vendor}/, which is a path of this server`)
  }
}

/** @throws Refusal `invalid_argument`. */
export function checkedHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  const entries = checkedCount('headers', Object.entries(headers), headersMax)
  for (const [name, value] of entries) {
    checkHeaderName('headers', name)
    checkSecret(`headers.${name}`, value)
  }
  return Object.fromEntries(entries)
}

/** @throws Refusal `invalid_argument`. */
export function checkedCredential({ in: place, name, prefix = '', values }: CredentialSettings): UpstreamCredential {
  if (!credentialPlaces.includes(place)) throw invalid('credential.in', `must be one of ${credentialPlaces.join(', ')}`)
  if (place === 'header') checkHeaderName('credential.name', name)
  else if (!/^[A-Za-z0-9_.[\]-]{1,128}$/.test(name)) throw invalid('credential.name', 'must be the name of a parameter')
  if (place === 'body' && !name.startsWith('params.')) {
    throw invalid('credential.name', 'must be a path in the message, such as params.arguments.api_key')
  }
  if (prefix !== '') checkSecret('credential.prefix', prefix)
  for (const value of checkedCount('credential.values', values, valuesMax)) checkSecret('credential.values', value)
  return { in: place, name, prefix, values: [...values] }
}

function checkHeaderName(field: string, name: string): void {
  if (!headerName.test(name)) throw invalid(field, 'must be the name of a header')
  if (reservedHeaders.includes(name.toLowerCase())) throw invalid(field, `must not set the header ${name}`)
}

/** A value that a header can carry: https://www.rfc-editor.org/rfc/rfc9110#section-5.5 */
function checkSecret(field: string, value: string): void {
  if (!/^[\x20-\x7e]+$/.test(value)) throw invalid(field, 'must be printable ASCII characters')
  if (value.length > secretMaxBytes) throw invalid(field, `is longer than ${secretMaxBytes} characters`)
}

/** @throws Refusal `invalid_argument` where there are too many. */
export function checkedCount<Item>(field: string, items: readonly Item[], max: number): readonly Item[] {
  if (items.length > max) throw invalid(field, `has ${items.length} entries; the maximum is ${max}`)
  return items
}

export const invalid = (field: string, problem: string): Refusal => new Refusal('invalid_argument', { field, problem })
