import { Refusal } from '../base/errors.ts'
import { isObject, own } from './json-rpc.ts'

/** Oldest first. https://modelcontextprotocol.io/specification/versioning */
export const legacyVersions = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'] as const
export type LegacyVersion = (typeof legacyVersions)[number]
export const latestLegacyVersion: LegacyVersion = '2025-11-25'

/** Assumed where a legacy client sends no header, as the transport of 2025-06-18 says. */
const headerlessVersion: LegacyVersion = '2025-03-26'

const firstModernVersion = '2026-07-28'
const modernClaim = 'io.modelcontextprotocol/protocolVersion'

export type Era =
  | { kind: 'legacy'; version: LegacyVersion }
  /** Stateless, since 2026-07-28; not served yet, and answered so that a client falls back. */
  | { kind: 'modern'; requested: string }

/**
 * Decides, once for each HTTP request, which protocol it speaks: a version claim in `_meta` means modern;
 * `initialize` without one, a batch, or no claim at all means legacy.
 * @param header the value of MCP-Protocol-Version.
 * @throws Refusal `unsupported_version` when the header names no version of either era.
 */
export function classify(header: string | undefined, body: unknown): Era {
  const claim = claimOf(body)
  if (claim !== undefined) return { kind: 'modern', requested: claim }
  if (header === undefined) return { kind: 'legacy', version: headerlessVersion }
  const version = toLegacyVersion(header)
  if (version !== undefined) return { kind: 'legacy', version }
  if (header >= firstModernVersion && /^\d{4}-\d{2}-\d{2}$/.test(header)) {
    const negotiates = isObject(body) && own(body, 'method') === 'initialize'
    return negotiates ? { kind: 'legacy', version: latestLegacyVersion } : { kind: 'modern', requested: header }
  }
  throw new Refusal('unsupported_version', { version: header.slice(0, 32), supported: legacyVersions })
}

export const toLegacyVersion = (version: unknown): LegacyVersion | undefined =>
  legacyVersions.find((known) => known === version)

function claimOf(body: unknown): string | undefined {
  if (!isObject(body)) return undefined
  const params = own(body, 'params')
  const meta = isObject(params) ? own(params, '_meta') : undefined
  if (!isObject(meta) || !Object.hasOwn(meta, modernClaim)) return undefined
  const claim = own(meta, modernClaim)
  return typeof claim === 'string' ? claim.slice(0, 32) : ''
}
