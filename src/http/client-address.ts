import type { IncomingMessage } from 'node:http'
import { BlockList, isIP } from 'node:net'

/** Proxies whose word about their clients is believed: addresses, and networks such as `10.0.0.0/8`. */
export class TrustedProxies {
  readonly #list = new BlockList()

  /** @throws Error where an entry is neither; the configuration has checked them. */
  constructor(entries: readonly string[]) {
    for (const entry of entries) {
      const [address = '', bits] = entry.split('/')
      const isFour = isIP(address) === 4
      this.#list.addSubnet(address, Number(bits ?? (isFour ? 32 : 128)), isFour ? 'ipv4' : 'ipv6')
    }
  }

  has(address: string): boolean {
    return this.#list.check(address, isIP(address) === 4 ? 'ipv4' : 'ipv6')
  }
}

/**
 * BOUNDARY: the address that a request comes from. Anybody can write `X-Forwarded-For`, so it is read from its end,
 * where the nearest proxy wrote, and only as far as each one that wrote is a trusted proxy.
 * https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/X-Forwarded-For
 */
export function clientAddress({ socket, headers }: IncomingMessage, trusted: TrustedProxies): string {
  let address = plain(socket.remoteAddress ?? '')
  // Repeated headers are one list; Node joins them.
  const hops = String(headers['x-forwarded-for'] ?? '').split(',')
  while (address !== '' && trusted.has(address)) {
    const next = plain(hops.pop()?.trim() ?? '')
    if (next === '') return address
    address = next
  }
  return address
}

/** What one client is taken for: an address, or in IPv6 the 64 bits that one subscriber can have at least. */
export function clientNetwork(address: string): string {
  if (isIP(address) !== 6) return address
  const [left = '', right = ''] = new URL(`http://[${address.replace(/%.*$/, '')}]`).hostname.slice(1, -1).split('::')
  const head = left.split(':').filter(Boolean)
  const tail = right.split(':').filter(Boolean)
  const groups = [...head, ...Array<string>(8 - head.length - tail.length).fill('0'), ...tail]
  return `${groups.slice(0, 4).join(':')}::/64`
}

/** One address without port, brackets and the IPv6 form of IPv4; empty where it is none. */
function plain(text: string): string {
  const [, address = text] = /^\[([^\]]*)\](?::\d+)?$/.exec(text) ?? /^(\d+\.\d+\.\d+\.\d+):\d+$/.exec(text) ?? []
  const mapped = address.replace(/^::ffff:(?=\d+\.\d+\.\d+\.\d+$)/i, '')
  return isIP(mapped) === 0 ? '' : mapped
}
