import { BlockList, isIP } from 'node:net'
import { Refusal } from '../base/errors.ts'
import { type AddressClass, classOf } from './address.ts'

/** The target of an outgoing connection, before its name is resolved. */
export interface Destination {
  url: URL
  /** Without brackets. */
  host: string
  port: number
}

const longestUrl = 2_048
/** Classes that a host in `outbound_allow` can resolve to. */
const namedClasses: readonly AddressClass[] = ['public', 'loopback', 'private', 'shared']

/** Hosts, addresses and networks from `outbound_allow`, which are reachable although they are not public. */
export class AllowedDestinations {
  readonly #names = new Set<string>()
  readonly #networks = new BlockList()

  /** @param entries host names, addresses, and networks as `10.0.0.0/8`. */
  constructor(entries: readonly string[]) {
    for (const entry of entries) {
      const [address = '', prefix] = entry.split('/')
      const version = isIP(address)
      if (version === 0) this.#names.add(entry.toLowerCase())
      else this.#networks.addSubnet(address, Number(prefix ?? (version === 4 ? 32 : 128)), familyOf(version))
    }
  }

  name(host: string): boolean {
    return this.#names.has(host.toLowerCase())
  }

  /** Addresses with an embedded IPv4 address never match, because BlockList would check the embedded one. */
  address(address: string): boolean {
    const isPlain = isIP(address) !== 0 && !address.includes('%') && classOf(address) !== 'embedded'
    return isPlain && this.#networks.check(address, familyOf(isIP(address)))
  }

  /** Whether a name can resolve to an allowed network. */
  get hasNetworks(): boolean {
    return this.#networks.rules.length > 0
  }
}

const familyOf = (version: number): 'ipv4' | 'ipv6' => (version === 6 ? 'ipv6' : 'ipv4')

/**
 * BOUNDARY: parses an address from a client. Checks that depend on the resolved name are repeated for each attempt.
 * @param field the name of the field in the request.
 * @throws Refusal `invalid_argument`, `destination_refused`.
 */
export function toDestination(field: string, text: string, allowed: AllowedDestinations): Destination {
  const invalid = (problem: string) => new Refusal('invalid_argument', { field, problem })
  if (text.length > longestUrl) throw invalid(`is longer than ${longestUrl} characters`)
  // The URL parser would silently remove characters that are not printable.
  if (!/^[\x21-\x7e]+$/.test(text)) throw invalid('must be an address of printable ASCII characters')
  // It would also treat backslashes as slashes, and the path as a host if the host is missing.
  const url = /^https?:\/\/[^/\\]+(?:\/|$|[?#])/i.test(text) && URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined) {
    throw invalid('must be an address that begins with https://')
  }
  if (url.username !== '' || url.password !== '' || /^[a-z]+:\/\/[^/?#]*@/i.test(text)) {
    throw invalid('must not hold a user name or password')
  }
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '')
  // The parser accepts 0x7f.1, 017700000001 and 2130706433 as addresses; reject such obfuscated forms.
  if (isIP(host) === 4 && !new RegExp(`^[a-z]+://${host.replaceAll('.', '[.]')}(?:[:/?#]|$)`, 'i').test(text)) {
    throw invalid('must hold an IPv4 address in its usual form')
  }
  if (host === '' || host.length > 253) throw invalid('must name a host')
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80))
  const destination = { url, host, port }
  if (isIP(host) !== 0) requireAllowed(destination, [host], allowed)
  else if (!allowed.name(host) && !allowed.hasNetworks) requireHttps(destination)
  return destination
}

/**
 * Requires that all addresses of a name are allowed.
 * @throws Refusal `destination_refused`.
 */
export function requireAllowed(
  destination: Destination,
  addresses: readonly string[],
  allowed: AllowedDestinations,
): void {
  const isNamed = allowed.name(destination.host)
  for (const address of addresses) {
    if (allowed.address(address)) continue
    const is = classOf(address)
    if (isNamed && namedClasses.includes(is)) continue
    if (is !== 'public') throw notPublic(destination.host)
    requireHttps(destination)
  }
}

/** Requires https and a standard port for hosts that the operator has not listed. */
function requireHttps({ url, port }: Destination): void {
  if (url.protocol !== 'https:') throw refused('it is not https')
  if (port !== 443 && port !== 80) throw refused(`port ${port} is not one of 443 and 80`)
}

export const notPublic = (host: string): Refusal => refused(`${host} has no address on the public internet`)

const refused = (reason: string): Refusal => new Refusal('destination_refused', { reason })
