import { BlockList, isIP } from 'node:net'
import { networkInterfaces } from 'node:os'

const keptMs = 5_000

/** Returns a function that says whether an address belongs to this machine, as of the last seconds. */
export function ownAddresses(): (address: string) => boolean {
  let list = new BlockList()
  let untilMs = 0
  return (address) => {
    const version = isIP(address)
    if (version === 0) return false
    if (performance.now() > untilMs) {
      list = addressesNow()
      untilMs = performance.now() + keptMs
    }
    return list.check(address, version === 4 ? 'ipv4' : 'ipv6')
  }
}

function addressesNow(): BlockList {
  const list = new BlockList()
  for (const addresses of Object.values(networkInterfaces())) {
    for (const { address, family } of addresses ?? []) list.addAddress(address, family === 'IPv6' ? 'ipv6' : 'ipv4')
  }
  return list
}
