import { BlockList, isIP } from 'node:net'

/** The class of an IP address; only `public` ones are reachable unless the operator lists them. */
export type AddressClass =
  | 'public'
  | 'unspecified'
  | 'loopback'
  | 'private'
  | 'shared'
  | 'link_local'
  | 'multicast'
  | 'embedded'
  | 'reserved'

type Network = readonly [network: string, prefix: number, is: Exclude<AddressClass, 'public'>]

/** https://www.iana.org/assignments/iana-ipv4-special-registry */
const networks4: readonly Network[] = [
  ['0.0.0.0', 8, 'unspecified'],
  ['127.0.0.0', 8, 'loopback'],
  ['10.0.0.0', 8, 'private'],
  ['172.16.0.0', 12, 'private'],
  ['192.168.0.0', 16, 'private'],
  ['100.64.0.0', 10, 'shared'],
  ['169.254.0.0', 16, 'link_local'],
  ['192.0.0.0', 24, 'reserved'],
  ['192.0.2.0', 24, 'reserved'],
  ['192.31.196.0', 24, 'reserved'],
  ['192.52.193.0', 24, 'reserved'],
  ['192.88.99.0', 24, 'reserved'],
  ['192.175.48.0', 24, 'reserved'],
  ['198.18.0.0', 15, 'reserved'],
  ['198.51.100.0', 24, 'reserved'],
  ['203.0.113.0', 24, 'reserved'],
  // The metadata service of a cloud outside the link-local range.
  ['168.63.129.16', 32, 'reserved'],
  ['224.0.0.0', 4, 'multicast'],
  ['240.0.0.0', 4, 'reserved'],
]

/** https://www.iana.org/assignments/iana-ipv6-special-registry; the first match wins, and addresses without a match are reserved. */
const networks6: readonly Network[] = [
  ['::', 128, 'unspecified'],
  ['::1', 128, 'loopback'],
  // Forms with an embedded IPv4 address: compatible, mapped, translated, NAT64, Teredo, 6to4.
  ['::', 96, 'embedded'],
  ['::ffff:0:0', 96, 'embedded'],
  ['::ffff:0:0:0', 96, 'embedded'],
  ['64:ff9b::', 96, 'embedded'],
  ['64:ff9b:1::', 48, 'embedded'],
  ['2001::', 32, 'embedded'],
  ['2002::', 16, 'embedded'],
  ['2001::', 23, 'reserved'],
  ['2001:db8::', 32, 'reserved'],
  ['2620:4f:8000::', 48, 'reserved'],
  ['3fff::', 20, 'reserved'],
  ['fc00::', 7, 'private'],
  ['fe80::', 10, 'link_local'],
  ['fec0::', 10, 'private'],
  ['ff00::', 8, 'multicast'],
]

/** Global unicast addresses are allocated only from this block. */
const global6: Network = ['2000::', 3, 'reserved']

const toList = ([network, prefix]: Network, family: 'ipv4' | 'ipv6'): BlockList => {
  const list = new BlockList()
  list.addSubnet(network, prefix, family)
  return list
}

const lists4 = networks4.map((network) => ({ is: network[2], list: toList(network, 'ipv4') }))
const lists6 = networks6.map((network) => ({ is: network[2], list: toList(network, 'ipv6') }))
const listGlobal6 = toList(global6, 'ipv6')

/** BOUNDARY: classifies an address for the decision whether to connect. Anything but a plain address is reserved. */
export function classOf(address: string): AddressClass {
  switch (address.includes('%') ? 0 : isIP(address)) {
    case 4:
      return lists4.find(({ list }) => list.check(address, 'ipv4'))?.is ?? 'public'
    case 6: {
      const named = lists6.find(({ list }) => list.check(address, 'ipv6'))?.is
      return named ?? (listGlobal6.check(address, 'ipv6') ? 'public' : 'reserved')
    }
    default:
      return 'reserved'
  }
}
