import type {
  JailNetwork,
  NetworkCounts,
  NetworkKind,
  NetworkOwner,
  NetworkTotals,
  NetworkUse,
} from '../base/network.ts'
import type { PackageCacheSettings, PackageCacheTotals } from '../base/package-cache.ts'

/** The port of the proxy on the loopback of a jail. */
export { proxyPort } from '../engine/jails/network-env.ts'

/** A certificate authority: its certificate in PEM, and its key as PKCS #8 in base64. */
export interface Authority {
  certificate: string
  key: string
}

/** The network of a jail, as its broker knows it. */
export type BrokerNetwork = JailNetwork & {
  /** Present if the jail has secrets: what it trusts. */
  authority?: Authority | undefined
}

/** What a socket of a jail is for. */
export type SocketKind = 'stream' | 'dns'

/** From the runner to its broker, over the IPC channel of Node. Each `socket` carries a handle. */
export type ToBroker =
  /** Sent before all others, if the operator configured a package cache. */
  | { type: 'packages'; settings: PackageCacheSettings }
  | { type: 'socket'; jail: number; kind: SocketKind }
  | { type: 'open'; jail: number; network: BrokerNetwork; owner: NetworkOwner }
  | { type: 'change'; jail: number; network: BrokerNetwork }
  /** Asks for a new authority. */
  | { type: 'authority'; jail: number }
  /** Asks for what was counted so far. */
  | { type: 'counts'; jail: number }
  | { type: 'close'; jail: number }

export type FromBroker =
  | { type: 'ready' }
  /** Sent when they have changed, at most some times a second. */
  | { type: 'totals'; totals: Record<NetworkKind, NetworkTotals> }
  /** As `totals`, if there is a package cache. */
  | { type: 'package_totals'; totals: PackageCacheTotals }
  | { type: 'opened'; jail: number }
  | { type: 'authority'; jail: number; authority: Authority }
  | { type: 'counts'; jail: number; counts: NetworkCounts }
  | { type: 'closed'; jail: number; uses: NetworkUse[] }
