import type { UpstreamRow } from '../../store/upstream-rows.ts'
import { changedTools, suspiciousTools, type UpstreamListing } from '../upstreams/listing.ts'
import { type ProgramSettings, programOf, type UpstreamProgram } from '../upstreams/programs/program.ts'
import { hintOf, openSecrets, type UpstreamCredential } from '../upstreams/secrets.ts'
import type { ChangeContext } from './admin.ts'

/** An upstream without its secrets. */
export interface UpstreamView {
  id: string
  name: string
  display_name: string
  description: string
  capability_tags: string[]
  transport: UpstreamRow['transport']
  /** Empty for a program. */
  url: string
  /** `null` unless the transport is `stdio`. */
  program: (Required<ProgramSettings> & { env_names: string[] }) | null
  timeout_ms: number
  enabled: boolean
  header_names: string[]
  /** Contains a hint for each value; see `hintOf`. */
  credential: { in: UpstreamCredential['in']; name: string; prefix: string; hints: string[] } | null
  /** `null` if the upstream uses no logins. */
  oauth: { client_id: string | null; scope: string | null } | null
  credential_mode: UpstreamRow['credentialMode']
  /** Number of approved tools; `null` until they were read once. */
  tools: number | null
  listed_at: string | null
  /** Names of the tools that are suspended until they are approved. */
  changed_tools: string[]
  /** Names of the tools whose description reads like instructions to a model. */
  suspicious_tools: string[]
  created_at: string
  updated_at: string
}

export function toView({ vault }: ChangeContext, row: UpstreamRow): UpstreamView {
  const { headers, credential, oauth = null, env = {} } = openSecrets(vault, row.id, row.secrets)
  const listing = row.listing === null ? null : (JSON.parse(row.listing) as UpstreamListing)
  const current = row.changedListing === null ? listing : (JSON.parse(row.changedListing) as UpstreamListing)
  return {
    id: row.id,
    name: row.name,
    display_name: row.displayName,
    description: row.description,
    capability_tags: JSON.parse(row.tags) as string[],
    transport: row.transport,
    url: row.url,
    program: toProgramView(programOf(row), Object.keys(env)),
    timeout_ms: row.timeoutMs,
    enabled: row.enabled === 1,
    header_names: Object.keys(headers),
    credential: credential && {
      ...{ in: credential.in, name: credential.name, prefix: credential.prefix },
      hints: credential.values.map(hintOf),
    },
    oauth: oauth && { client_id: oauth.clientId, scope: oauth.scope },
    credential_mode: row.credentialMode,
    tools: listing?.tools.length ?? null,
    listed_at: row.listedAt,
    changed_tools: listing && current ? changedTools(listing, current) : [],
    suspicious_tools: current ? suspiciousTools(current) : [],
    created_at: row.createdAt,
    updated_at: row.updatedAt,
  }
}

const toProgramView = (program: UpstreamProgram | null, envNames: string[]): UpstreamView['program'] =>
  program && { ...toProgramSettings(program), env_names: envNames }

/** Returns all settings of a program. */
export function toProgramSettings(program: UpstreamProgram): Required<ProgramSettings> {
  const { credentialHosts, memoryBytes, diskBytes, idleMs, lifetimeMs, noSecretReason = null, ...same } = program
  return {
    ...same,
    no_secret_reason: noSecretReason,
    ...{ credential_hosts: credentialHosts, memory_bytes: memoryBytes, disk_bytes: diskBytes },
    ...{ idle_ms: idleMs, lifetime_ms: lifetimeMs },
  }
}
