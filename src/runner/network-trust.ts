import type { JailNetwork } from '../base/network.ts'
import type { Egress, Trust } from '../egress/client.ts'

/**
 * Returns what a jail trusts that has secrets.
 * @param owner a sandbox, or a key with the revision of its profile.
 * @returns undefined if it has none, or no network.
 * @throws Error when the broker makes no authority.
 */
export async function trustFor(
  network: JailNetwork | undefined,
  owner: string,
  egress: Egress | undefined,
): Promise<Trust | undefined> {
  return network?.secrets === undefined || network.secrets.length === 0 ? undefined : egress?.trust(owner)
}

/** A network as its jail is made for it. */
export const withCertificates = (network: JailNetwork, trust: Trust | undefined): JailNetwork =>
  trust === undefined ? network : { ...network, certificates: trust.certificates }
