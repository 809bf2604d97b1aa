import { isIP } from 'node:net'
import { withoutPort } from './forwarded.ts'

/**
 * Returns the network of a client, for which failed authentications are counted: an IPv4 address, or the first 64 bits
 * of an IPv6 address, which is the least that one subscriber has.
 */
export function clientNetwork(address: string): string {
  const known = withoutPort(address)
  if (isIP(known) !== 6) return known
  const [left = '', right = ''] = new URL(`http://[${known.replace(/%.*$/, '')}]`).hostname.slice(1, -1).split('::')
  const head = left.split(':').filter(Boolean)
  const tail = right.split(':').filter(Boolean)
  const groups = [...head, ...Array<string>(8 - head.length - tail.length).fill('0'), ...tail]
  return `${groups.slice(0, 4).join(':')}::/64`
}
