import { BlockList, isIP } from 'node:net'
import type { NetworkSecret } from './network-secrets.ts'
import type { CachedManager } from './package-cache.ts'

/** What a run can reach outside of its jail. */
export const networkPolicies = ['none', 'packages', 'allow', 'public'] as const
export type NetworkPolicy = (typeof networkPolicies)[number]

/** Limits of the connections of one run; 0 is no limit for the two quantities of bytes. */
export interface NetworkLimits {
  /** Open connections. */
  connections: number
  /** Bytes in both directions. */
  bytes: number
  /** Bytes that its programs send; absent: no limit of its own. */
  sentBytes?: number
  bytesPerSecond: number
}

/** Limits of all jails of one key, and of one organization. Rates are in each direction; 0 sets no limit. */
export interface SharedNetworkLimits {
  connectionsPerKey: number
  connectionsPerOrg: number
  bytesPerSecondPerKey: number
  bytesPerSecondPerOrg: number
}

export const networkKinds = ['run', 'sandbox'] as const
export type NetworkKind = (typeof networkKinds)[number]

/** To whom a jail belongs. */
export interface NetworkOwner {
  kind: NetworkKind
  orgId: string
  keyId: string
}

/** Of all jails of one kind, since the broker started. */
export interface NetworkTotals {
  /** Open connections of programs. */
  open: number
  connections: Partial<Record<NetworkVerdict, number>>
  sentBytes: number
  receivedBytes: number
}

/** The network of a jail. A jail without one has no network except its loopback. */
export interface JailNetwork {
  policy: Exclude<NetworkPolicy, 'none'>
  /**
   * As `parseRule` reads them: destinations for `packages` and `allow`, further networks for `public`. None for `packages`
   * means those that the package managers of the machine are configured with.
   */
  rules: readonly string[]
  /** For `packages`: further networks in which its destinations may be. */
  networks?: readonly string[]
  limits: NetworkLimits
  /** Package managers that use the package cache; absent: it is not configured, or the policy does not reach it. */
  cached?: readonly CachedManager[]
  /** BOUNDARY: values in it are never logged, and never enter the jail. */
  secrets?: readonly NetworkSecret[]
  /** What a jail with secrets trusts, in PEM. Only its runner knows it. */
  certificates?: string
}

/** What a run or sandbox has whose profile has no network any more. */
export const noDestinations: JailNetwork = {
  policy: 'allow',
  rules: [],
  limits: { connections: 1, bytes: 0, bytesPerSecond: 0 },
}

/** What was decided on a connection, and what became of it. */
export const networkVerdicts = [
  'allowed',
  /** The policy lists neither this name nor this address on this port, or not this request. */
  'refused_destination',
  /** The name has only addresses that the policy does not allow, such as private ones. */
  'refused_address',
  /** The name in the connection is another one than the requested one, or is encrypted. */
  'refused_name',
  /** The run has reached a limit of its connections. */
  'refused_limit',
  /** The placeholder of a secret was sent where it is not replaced. */
  'refused_secret',
  'unresolved',
  'unreachable',
] as const
export type NetworkVerdict = (typeof networkVerdicts)[number]

/** Connections of a run to one destination with the same verdict. */
export interface NetworkUse {
  host: string
  port: number
  verdict: NetworkVerdict
  connections: number
  /** In both directions. */
  bytes: number
}

/** What the connections of a jail have transferred so far. */
export interface NetworkCounts {
  uses: NetworkUse[]
  sentBytes: number
  receivedBytes: number
}

/** Destinations that the result of a run names at most; further ones are added up under the host `*`. */
export const networkUsesMax = 64

/** One entry of a policy. */
export interface NetworkRule {
  target:
    | { kind: 'name'; name: string }
    /** Every name below this one. */
    | { kind: 'suffix'; suffix: string }
    | { kind: 'network'; list: BlockList; version: 4 | 6 }
  /** `any`, or one port; absent: 80 and 443. */
  port?: number | 'any'
  /** Only these methods of HTTP; absent: every connection. */
  methods?: readonly string[]
  /** Only paths that begin with it. */
  path?: string
}

export const networkRulesMax = 256

const rulePattern =
  /^(?:(?<methods>[A-Z]+(?:[|][A-Z]+)*) )?(?:\[(?<six>[0-9a-fA-F:.]+(?:\/\d{1,3})?)\]|(?<target>[^\s:/[\]]+(?:\/\d{1,2}(?![^:]))?))(?::(?<port>\d{1,5}|\*))?(?<path>\/[\x21-\x7e]*)?$/
const namePattern =
  /^(?=.{1,253}$)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/

/** The form of a name in which names are compared. */
export const plainName = (host: string): string => host.toLowerCase().replace(/\.$/, '')

/** Whether a host can be a name: ASCII, as it is sent to a name server. */
export const isName = (host: string): boolean => namePattern.test(host)

/**
 * BOUNDARY: parses an entry of a policy: `name`, `*.suffix`, an address or a network such as `10.0.0.0/8` (IPv6 in brackets),
 * each with `:port` or `:*` and, for requests of HTTP, `GET|HEAD ` before it and a path after it.
 * @returns undefined for anything else.
 */
export function parseRule(text: string): NetworkRule | undefined {
  const groups = rulePattern.exec(text)?.groups
  if (groups === undefined) return undefined
  const target = groups.six === undefined ? toTarget(groups.target ?? '') : toNetwork(groups.six, 6)
  const port = groups.port === '*' ? 'any' : groups.port === undefined ? undefined : Number(groups.port)
  if (target === undefined || port === 0 || (typeof port === 'number' && port > 65_535)) return undefined
  return {
    target,
    ...(port !== undefined && { port }),
    ...(groups.methods !== undefined && { methods: groups.methods.split('|') }),
    ...(groups.path !== undefined && groups.path !== '/' && { path: groups.path }),
  }
}

function toTarget(text: string): NetworkRule['target'] | undefined {
  const network = toNetwork(text, 4)
  if (network !== undefined) return network
  const name = plainName(text)
  if (name.startsWith('*.') && isName(name.slice(2))) return { kind: 'suffix', suffix: name.slice(1) }
  // Digits at the end are an address in one of its other notations.
  return isName(name) && !/(?:^|\.)(?:\d+|0x[0-9a-f]*)$/.test(name) ? { kind: 'name', name } : undefined
}

function toNetwork(text: string, version: 4 | 6): NetworkRule['target'] | undefined {
  const [address = '', prefix] = text.split('/')
  const bits = version === 4 ? 32 : 128
  const length = prefix === undefined ? bits : Number(prefix)
  if (isIP(address) !== version || length > bits) return undefined
  const list = new BlockList()
  list.addSubnet(address, length, version === 4 ? 'ipv4' : 'ipv6')
  return { kind: 'network', list, version }
}
