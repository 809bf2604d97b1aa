/** The settings of the network of a profile. */
import Type, { type Static } from 'typebox'
import {
  type JailNetwork,
  networkPolicies,
  networkRulesMax,
  parseRule,
  type SharedNetworkLimits,
} from './base/network.ts'
import { networkSecretsMax, secretNamePattern } from './base/network-secrets.ts'
import { type CachedManager, cachedManagers, indexAddressProblem, reachesPackageCache } from './base/package-cache.ts'
import type { Profile } from './base/profile.ts'
import { bytes, count, GiB, MiB, setting } from './setting.ts'

const inProfiles = true

const rules = Type.Array(Type.String({ pattern: '^[\\x20-\\x7e]{1,512}$' }), {
  uniqueItems: true,
  maxItems: networkRulesMax,
})

function notRules(list: readonly string[]): string | undefined {
  const wrong = list.find((entry) => parseRule(entry) === undefined)
  return wrong === undefined ? undefined : `${wrong} is no destination. Write them as in docs/network.md.`
}

export const networkSettings = {
  network: setting(
    Type.Enum(networkPolicies),
    'none',
    'What a run can reach: nothing, the package_indexes, the destinations in network_allow, or every public address.',
    { inProfiles },
  ),
  network_allow: setting(
    rules,
    [],
    'Destinations of the policy allow, and private networks of the policies public and packages: names, *.suffixes, addresses and networks, each with :port, :* or ports 80 and 443, and for requests of HTTP with methods and a path, as in GET|HEAD api.example/v1/.',
    { inProfiles, problem: notRules },
  ),
  package_indexes: setting(
    rules,
    [],
    'Destinations of the policy packages, as in network_allow. Empty: the indexes that pip, npm and apt of the machine are configured with.',
    { inProfiles, problem: notRules },
  ),
  secrets: setting(
    Type.Array(Type.String({ pattern: secretNamePattern }), { uniqueItems: true, maxItems: networkSecretsMax }),
    [],
    "Secrets of the key's organization: programs see placeholders in variables with their names, which are replaced outside in requests to their servers.",
    { inProfiles },
  ),
  limit_connections: setting(count(1, 65_536), 4096, 'Open connections of a run with a network.', {
    unit: 'count',
    inProfiles,
  }),
  limit_network: setting(
    bytes(0, 1024 * GiB),
    64 * GiB,
    'Bytes that the connections of a run may transfer in both directions; 0 sets no limit.',
    { unit: 'bytes', inProfiles },
  ),
  limit_network_sent: setting(
    bytes(0, 1024 * GiB),
    0,
    'Bytes that the programs of a run may send; 0 sets no limit beside limit_network.',
    { unit: 'bytes', inProfiles },
  ),
  limit_network_rate: setting(
    bytes(0, 1024 * GiB),
    0,
    'Bytes per second that the connections of a run may transfer in both directions; 0 sets no limit.',
    { unit: 'bytes', inProfiles },
  ),
} as const

/** Of the whole server. */
export const sharedNetworkSettings = {
  egress_ca_file: setting(
    Type.String({ maxLength: 4096 }),
    '',
    'File with further certificate authorities, in PEM, that servers of secrets may have. egress_uid must be able to read it.',
  ),
  network_connections_per_key: setting(
    count(1, 1_000_000),
    8192,
    'Open connections of all runs and sandboxes of one key to the outside; further ones are reset.',
    { unit: 'count' },
  ),
  network_connections_per_org: setting(
    count(1, 1_000_000),
    16_384,
    'Open connections of all runs and sandboxes of one organization to the outside; further ones are reset.',
    { unit: 'count' },
  ),
  network_rate_per_key: setting(
    bytes(0, 1024 * GiB),
    0,
    'Bytes per second that all runs and sandboxes of one key may send, and receive, from outside; 0 sets no limit.',
    { unit: 'bytes' },
  ),
  network_rate_per_org: setting(
    bytes(0, 1024 * GiB),
    0,
    'Bytes per second that all runs and sandboxes of one organization may send, and receive, from outside; 0 sets no limit.',
    { unit: 'bytes' },
  ),
} as const

const indexAddress = Type.Optional(Type.String({ maxLength: 2048 }))

function notIndexes(caches: Partial<Record<CachedManager, string>>): string | undefined {
  for (const [manager, address] of Object.entries(caches)) {
    const problem = indexAddressProblem(address)
    if (problem !== undefined) return `the address of ${manager} ${problem}. Write it as https://index.example/simple.`
  }
  return undefined
}

/** Of the package cache. */
export const packageCacheSettings = {
  package_cache: setting(
    Type.Object({ pip: indexAddress, npm: indexAddress, apt: indexAddress }, { additionalProperties: false }),
    {},
    'Indexes whose packages are kept for all runs and sandboxes, by package manager, as pip: https://user:token@index.example/simple. That of apt is a Debian archive with dists and pool. Their hosts need not be public. Empty: nothing is kept.',
    { secret: true, problem: notIndexes },
  ),
  package_cache_size: setting(
    bytes(64 * MiB, 1024 * GiB),
    10 * GiB,
    'Size of the package cache on the disk; what was not used for the longest time makes room. One file may have a quarter of it.',
    { unit: 'bytes' },
  ),
} as const

/** Of published ports of sandboxes. */
export const previewSettings = {
  preview_rate_per_key: setting(
    bytes(0, 1024 * GiB),
    0,
    'Bytes per second that the previews of one key may send, and receive; 0 sets no limit.',
    { unit: 'bytes' },
  ),
  preview_rate_per_org: setting(
    bytes(0, 1024 * GiB),
    0,
    'Bytes per second that the previews of one organization may send, and receive; 0 sets no limit.',
    { unit: 'bytes' },
  ),
  preview_hourly_per_key: setting(
    bytes(0, 1024 * GiB),
    0,
    'Bytes that the previews of one key may transfer in both directions within an hour; then they end, and further ones are refused with 429. 0 sets no limit.',
    { unit: 'bytes' },
  ),
  preview_hourly_per_org: setting(
    bytes(0, 1024 * GiB),
    0,
    'Bytes that the previews of one organization may transfer in both directions within an hour; then they end, and further ones are refused with 429. 0 sets no limit.',
    { unit: 'bytes' },
  ),
} as const

/** Settings of a network under the names and in the units that operators write. */
export type NetworkValues = {
  [Name in keyof typeof networkSettings]: Static<(typeof networkSettings)[Name]['schema']>
} & {
  /** Of the server. */
  package_cache?: Static<(typeof packageCacheSettings)['package_cache']['schema']>
}

/** Returns the network of a profile from its settings. */
export function toNetwork(values: NetworkValues): Pick<Profile, 'network' | 'secrets'> {
  const { network: policy } = values
  if (policy === 'none') return {}
  const limits = {
    connections: values.limit_connections,
    bytes: values.limit_network,
    ...(values.limit_network_sent > 0 && { sentBytes: values.limit_network_sent }),
    bytesPerSecond: values.limit_network_rate,
  }
  const isPackages = policy === 'packages'
  const rules = isPackages ? values.package_indexes : values.network_allow
  const cached = cachedManagers.filter((manager) => values.package_cache?.[manager] !== undefined)
  return {
    network: {
      policy,
      rules,
      ...(cached.length > 0 && reachesPackageCache({ policy, rules }) && { cached }),
      ...(isPackages && values.network_allow.length > 0 && { networks: values.network_allow }),
      limits,
    },
    ...(values.secrets.length > 0 && { secrets: [...values.secrets].sort() }),
  }
}

/** Returns the network of package managers, which programs are installed with. */
export const packagesNetwork = (values: NetworkValues): JailNetwork =>
  toNetwork({ ...values, network: 'packages', secrets: [] }).network!

/** @param refuse throws. */
export function checkNetwork(values: NetworkValues, refuse: (problem: string, remedy: string) => never): void {
  if (values.network === 'allow' && values.network_allow.length === 0) {
    refuse('network is allow, and network_allow is empty', 'List destinations in network_allow, or set network: none.')
  }
  if (values.network === 'none' && values.secrets.length > 0) {
    refuse('secrets are named without a network', 'Set network, or remove secrets.')
  }
}

/** Returns what the jails of a key, and of an organization, may use together. */
export const toSharedLimits = (config: {
  networkConnectionsPerKey: number
  networkConnectionsPerOrg: number
  networkRatePerKeyBytes: number
  networkRatePerOrgBytes: number
}): SharedNetworkLimits => ({
  connectionsPerKey: config.networkConnectionsPerKey,
  connectionsPerOrg: config.networkConnectionsPerOrg,
  bytesPerSecondPerKey: config.networkRatePerKeyBytes,
  bytesPerSecondPerOrg: config.networkRatePerOrgBytes,
})

/** Returns what the previews of a key, and of an organization, may transfer. */
export const toPreviewLimits = (config: {
  previewRatePerKeyBytes: number
  previewRatePerOrgBytes: number
  previewHourlyPerKeyBytes: number
  previewHourlyPerOrgBytes: number
}) => ({
  bytesPerSecondPerKey: config.previewRatePerKeyBytes,
  bytesPerSecondPerOrg: config.previewRatePerOrgBytes,
  bytesPerHourPerKey: config.previewHourlyPerKeyBytes,
  bytesPerHourPerOrg: config.previewHourlyPerOrgBytes,
})
