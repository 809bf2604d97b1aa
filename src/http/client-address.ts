import { isIP } from 'node:net'

/**
 * Returns networks as Fastify's `trustProxy` accepts them. It refuses a prefix of 0 bits, which the configuration
 * allows, so both halves of the address space stand for it.
 */
export const toTrustProxy = (networks: readonly string[]): string[] =>
  networks.flatMap((network) => {
    if (!network.endsWith('/0')) return network
    return network.includes(':') ? ['::/1', '8000::/1'] : ['0.0.0.0/1', '128.0.0.0/1']
  })

/**
 * Returns the network of a client, for which failed authentications are counted: an IPv4 address, or the first 64 bits
 * of an IPv6 address, which is the least that one subscriber has.
 * @param address that Fastify took from `X-Forwarded-For`, from the end of the list as far as its proxies are trusted.
 *   Where a proxy wrote no address there, the address of the connection counts.
 */
export function clientNetwork(address: string, connectionAddress: string): string {
  const known = withoutPort(address) || withoutPort(connectionAddress)
  if (isIP(known) !== 6) return known
  const [left = '', right = ''] = new URL(`http://[${known.replace(/%.*$/, '')}]`).hostname.slice(1, -1).split('::')
  const head = left.split(':').filter(Boolean)
  const tail = right.split(':').filter(Boolean)
  const groups = [...head, ...Array<string>(8 - head.length - tail.length).fill('0'), ...tail]
  return `${groups.slice(0, 4).join(':')}::/64`
}

/** Returns an address without port, brackets and the prefix of mapped IPv4; an empty string if the text is not an address. */
function withoutPort(text: string): string {
  const [, address = text] = /^\[([^\]]*)\](?::\d+)?$/.exec(text) ?? /^(\d+\.\d+\.\d+\.\d+):\d+$/.exec(text) ?? []
  const mapped = address.replace(/^::ffff:(?=\d+\.\d+\.\d+\.\d+$)/i, '')
  return isIP(mapped) === 0 ? '' : mapped
}
