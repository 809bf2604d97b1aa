import type { IncomingMessage } from 'node:http'
import { BlockList, isIP } from 'node:net'

/** How a client reached the server. */
export interface Forwarded {
  /** Address of the client. */
  address: string
  protocol: 'http' | 'https'
  /** With the port, where it is not the usual one. */
  host: string
  /** Path below which the server is reached; without a trailing slash. */
  prefix: string
}

/** Reads how a client reached the server. */
export type ReadForwarded = (request: Pick<IncomingMessage, 'headers' | 'socket'>) => Forwarded

/** One proxy on the way, as it describes the request that it received. */
interface Hop {
  address: string
  protocol?: string | undefined
  host?: string | undefined
}

/**
 * BOUNDARY: believes the headers of reverse proxies on the way to the client, from the nearest one on, for as long as
 * they are trusted. Anyone can send these headers. `X-Forwarded-*` have precedence over `Forwarded` (RFC 7239), since a
 * proxy that sets the former may pass on the latter as its client sent it.
 * @param networks addresses and networks of trusted proxies.
 */
export function forwardedReader(networks: readonly string[]): ReadForwarded {
  const trusted = toBlockList(networks)
  const isTrusted = (address: string) => {
    const known = withoutPort(address)
    return known !== '' && trusted.check(known, isIP(known) === 6 ? 'ipv6' : 'ipv4')
  }
  return ({ headers, socket }) => {
    const address = socket.remoteAddress ?? ''
    const direct: Forwarded = { address, protocol: protocolOf(socket), host: headers.host ?? 'localhost', prefix: '' }
    if (networks.length === 0 || !isTrusted(address)) return direct
    const hops = hopsOf(headers)
    // The client is the first address that is not a trusted proxy, or the farthest one.
    let at = hops.length - 1
    while (at > 0 && isTrusted(hops[at]!.address)) at -= 1
    const hop = hops[at]
    const protocol = hop?.protocol?.toLowerCase()
    return {
      address: hop && withoutPort(hop.address) !== '' ? hop.address : address,
      protocol: protocol === 'https' ? 'https' : 'http',
      host: hop?.host !== undefined && hosts.test(hop.host) ? hop.host : direct.host,
      prefix: prefixOf(listOf(headers['x-forwarded-prefix']).at(-1) ?? ''),
    }
  }
}

/** Requests over TLS arrive on the decrypted socket. */
const protocolOf = (socket: object): 'http' | 'https' => ('encrypted' in socket ? 'https' : 'http')

const hosts = /^(?:[a-z0-9](?:[a-z0-9._-]{0,252})|\[[0-9a-f:.]{2,45}\])(?::\d{1,5})?$/i

/** @param networks addresses, and networks such as `10.0.0.0/8`. */
export function toBlockList(networks: readonly string[]): BlockList {
  const list = new BlockList()
  for (const network of networks) {
    const [address = '', bits] = network.split('/')
    const version = isIP(address)
    if (version === 6) list.addSubnet(address, Number(bits ?? 128), 'ipv6')
    else if (version === 4) list.addSubnet(address, Number(bits ?? 32), 'ipv4')
  }
  return list
}

/** Returns the hops from the client's side to the nearest proxy. */
function hopsOf(headers: IncomingMessage['headers']): Hop[] {
  const addresses = listOf(headers['x-forwarded-for'])
  const [protocols, names] = [listOf(headers['x-forwarded-proto']), listOf(headers['x-forwarded-host'])]
  if (addresses.length + protocols.length + names.length === 0) return listOf(headers.forwarded).map(toHop)
  const length = Math.max(addresses.length, 1)
  return Array.from({ length }, (_, n) => ({
    address: addresses[n] ?? '',
    // A proxy may replace these while it adds to the addresses: the nearest ones belong to the nearest proxies.
    protocol: protocols[Math.max(protocols.length - length + n, 0)],
    host: names[Math.max(names.length - length + n, 0)],
  }))
}

/** https://www.rfc-editor.org/rfc/rfc7239#section-4 */
function toHop(element: string): Hop {
  const pairs = element.matchAll(/(\w+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]+))/g)
  const fields = Object.fromEntries(
    [...pairs].map(([, name = '', quoted, token]) => [name.toLowerCase(), quoted ?? token]),
  )
  return { address: fields.for ?? '', protocol: fields.proto, host: fields.host }
}

/** Returns the elements of a list header, of which there can be several. */
const listOf = (header: string | string[] | undefined): string[] =>
  header === undefined
    ? []
    : [header]
        .flat()
        .join(',')
        .split(/,(?=(?:[^"]*"[^"]*")*[^"]*$)/)
        .map((element) => element.trim())
        .filter(Boolean)

const prefixOf = (path: string): string => (/^(?:\/[\w.~-]+)+\/?$/.test(path) ? path.replace(/\/$/, '') : '')

/** Returns an address without port, brackets and the prefix of mapped IPv4; an empty string if the text is not an address. */
export function withoutPort(text: string): string {
  const [, address = text] = /^\[([^\]]*)\](?::\d+)?$/.exec(text) ?? /^(\d+\.\d+\.\d+\.\d+):\d+$/.exec(text) ?? []
  const mapped = address.replace(/^::ffff:(?=\d+\.\d+\.\d+\.\d+$)/i, '')
  return isIP(mapped) === 0 ? '' : mapped
}
