import { BlockList, isIP } from 'node:net'
import { Refusal } from '../base/errors.ts'
import { type AddressClass, classOf } from './address.ts'

/** Where an outgoing connection is to go; not yet which address that is. */
export interface Destination {
  url: URL
  /** Without brackets. */
  host: string
  port: number
}

const longestUrl = 2_048
/** Named by its operator a host may be in its own network; what no host of one is stays refused. */
const namedClasses: readonly AddressClass[] = ['public', 'loopback', 'private', 'shared']

/** Hosts, addresses and networks that the operator lets outgoing connections reach though they are not public. */
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

  /** What carries an IPv4 address inside is never meant: the list would look at that one. */
  address(address: string): boolean {
    const isPlain = isIP(address) !== 0 && !address.includes('%') && classOf(address) !== 'embedded'
    return isPlain && this.#networks.check(address, familyOf(isIP(address)))
  }

  /** Whether a name may turn out to be in a network that is allowed. */
  get hasNetworks(): boolean {
    return this.#networks.rules.length > 0
  }
}

const familyOf = (version: number): 'ipv4' | 'ipv6' => (version === 6 ? 'ipv6' : 'ipv4')

/**
 * BOUNDARY: reads an address that a client gives. What depends on the name is looked at again in each try.
 * @param field as the client calls it.
 * @throws Refusal `invalid_argument`, `destination_refused`.
 */
export function toDestination(field: string, text: string, allowed: AllowedDestinations): Destination {
  const invalid = (problem: string) => new Refusal('invalid_argument', { field, problem })
  if (text.length > longestUrl) throw invalid(`is longer than ${longestUrl} characters`)
  // The parser would drop what is not printable and read on; what is meant must be what is said.
  if (!/^[\x21-\x7e]+$/.test(text)) throw invalid('must be an address of printable ASCII characters')
  // It would also read backslashes as slashes, and the path as a host where none is named.
  const url = /^https?:\/\/[^/\\]+(?:\/|$|[?#])/i.test(text) && URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined) {
    throw invalid('must be an address that begins with https://')
  }
  if (url.username !== '' || url.password !== '' || /^[a-z]+:\/\/[^/?#]*@/i.test(text)) {
    throw invalid('must not hold a user name or password')
  }
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '')
  // The parser reads 0x7f.1, 017700000001 and 2130706433 as addresses; whoever writes so hides something.
  if (isIP(host) === 4 && !new RegExp(`^[a-z]+://${host.replaceAll('.', '[.]')}(?:[:/?#]|$)`, 'i').test(text)) {
    throw invalid('must hold an IPv4 address in its usual form')
  }
  if (host === '' || host.length > 253) throw invalid('must name a host')
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80))
  const destination = { url, host, port }
  if (isIP(host) !== 0) requireAllowed(destination, [host], allowed)
  else if (!allowed.name(host) && !allowed.hasNetworks) requireUsual(destination)
  return destination
}

/**
 * Requires that every address a name has may be reached.
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
    if (is !== 'public') throw refused(`${destination.host} is not on the public internet`)
    requireUsual(destination)
  }
}

/** What is not named by the operator is reached encrypted and at the usual ports alone. */
function requireUsual({ url, port }: Destination): void {
  if (url.protocol !== 'https:') throw refused('it is not https')
  if (port !== 443 && port !== 80) throw refused(`port ${port} is not one of 443 and 80`)
}

const refused = (reason: string): Refusal => new Refusal('destination_refused', { reason })
