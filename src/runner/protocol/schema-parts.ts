/** Parts of the schemas of messages. */

import { Type } from 'typebox'
import { networkPolicies, networkRulesMax } from '../../base/network.ts'
import {
  networkSecretsMax,
  placeholderPattern,
  secretHostsMax,
  secretNamePattern,
  secretPlaces,
  secretValueMaxBytes,
} from '../../base/network-secrets.ts'
import { cachedManagers } from '../../base/package-cache.ts'

export const closed = { additionalProperties: false }

/** The pattern of the name of a variable. */
export const envName = '^[A-Za-z_][A-Za-z0-9_]{0,127}$'

export const id = Type.String({ minLength: 1, maxLength: 128, pattern: '^[A-Za-z0-9_.:-]+$' })
export const count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
export const size = Type.Integer({ minimum: 0, maximum: 2 ** 44 })

export const Limits = Type.Object(
  {
    memoryBytes: Type.Integer({ minimum: 16 * 1024 * 1024, maximum: 2 ** 44 }),
    cpus: Type.Number({ minimum: 0.01, maximum: 4096 }),
    pids: Type.Integer({ minimum: 4, maximum: 4_194_304 }),
    openFiles: Type.Integer({ minimum: 16, maximum: 1_048_576 }),
    fileBytes: size,
    tmpBytes: size,
    homeBytes: size,
    outputSoftBytes: Type.Integer({ minimum: 1024, maximum: 64 * 1024 * 1024 }),
    outputHardBytes: size,
    timeoutMs: Type.Integer({ minimum: 1, maximum: 7 * 24 * 3600 * 1000 }),
  },
  { additionalProperties: false },
)

/** It becomes the name of a file. */
export const storageName = Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$' })

export const Quota = Type.Object(
  {
    // With less ext4 has no journal.
    bytes: Type.Integer({ minimum: 8 * 1024 * 1024, maximum: 2 ** 44 }),
    inodes: Type.Integer({ minimum: 16, maximum: 2 ** 31 }),
  },
  { additionalProperties: false },
)

export const Thread = Type.Object({ id: storageName, fence: count, quota: Quota }, closed)

export const Volume = Type.Object(
  { slug: storageName, name: storageName, readOnly: Type.Boolean(), quota: Quota },
  { additionalProperties: false },
)

const rules = Type.Array(Type.String({ pattern: '^[\\x20-\\x7e]{1,512}$' }), { maxItems: networkRulesMax })

const NetworkSecret = Type.Object(
  {
    name: Type.String({ pattern: secretNamePattern }),
    placeholder: Type.String({ pattern: placeholderPattern }),
    value: Type.String({ minLength: 1, maxLength: secretValueMaxBytes }),
    hosts: Type.Array(Type.String({ maxLength: 512 }), { maxItems: secretHostsMax }),
    places: Type.Array(Type.Union(secretPlaces.map((place) => Type.Literal(place))), { maxItems: secretPlaces.length }),
  },
  { additionalProperties: false },
)

/** The network of a jail. */
export const Network = Type.Object(
  {
    policy: Type.Union(networkPolicies.filter((policy) => policy !== 'none').map((policy) => Type.Literal(policy))),
    rules,
    networks: Type.Optional(rules),
    cached: Type.Optional(
      Type.Array(Type.Union(cachedManagers.map((manager) => Type.Literal(manager))), {
        maxItems: cachedManagers.length,
      }),
    ),
    secrets: Type.Optional(Type.Array(NetworkSecret, { maxItems: networkSecretsMax })),
    limits: Type.Object(
      {
        connections: Type.Integer({ minimum: 1, maximum: 65_536 }),
        ...{ bytes: size, sentBytes: Type.Optional(size), bytesPerSecond: size },
      },
      { additionalProperties: false },
    ),
  },
  { additionalProperties: false },
)
