import { Refusal } from '../base/errors.ts'
import { isObject, own } from './json-rpc/message.ts'

/** Oldest first. https://modelcontextprotocol.io/specification/versioning */
export const legacyVersions = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'] as const
export type LegacyVersion = (typeof legacyVersions)[number]
export const latestLegacyVersion: LegacyVersion = '2025-11-25'

/** Assumed where a legacy client sends no header, as the transport of 2025-06-18 requires. */
const headerlessVersion: LegacyVersion = '2025-03-26'

/** The versions without sessions and `initialize`: every request states its version. */
export const modernVersions = ['2026-07-28'] as const

export const metaKey = (name: string): string => `io.modelcontextprotocol/${name}`
const modernClaim = metaKey('protocolVersion')

export type LegacyEra = Extract<Era, { kind: 'legacy' }>
export type Era = { kind: 'legacy'; version: LegacyVersion; claimed: boolean } | { kind: 'modern' }

/**
 * Decides once for each HTTP request which era it belongs to. A version claim in `_meta` means modern; `initialize`, a
 * batch or no claim means legacy. A modern version in the header without a claim in the body is an incomplete modern
 * request.
 * @param header the value of MCP-Protocol-Version.
 * @throws Refusal `unsupported_version` when the header names no version of either era.
 */
export function classify(header: string | undefined, body: unknown): Era {
  const isModern = claimsModern(body)
  // A client that sends `initialize` can negotiate, unless header and body both name the era that has no `initialize`.
  if (isInitialize(body) && !(isModern && isModernHeader(header))) {
    return { kind: 'legacy', version: latestLegacyVersion, claimed: false }
  }
  if (isModern) return { kind: 'modern' }
  if (header === undefined) return { kind: 'legacy', version: headerlessVersion, claimed: false }
  const version = toLegacyVersion(header)
  if (version !== undefined) return { kind: 'legacy', version, claimed: true }
  if (isModernHeader(header)) return { kind: 'modern' }
  throw new Refusal('unsupported_version', { version: header.slice(0, 32), supported: legacyVersions })
}

/** Whether a header names a version of the modern era, including versions that this server does not know. */
export const isModernHeader = (header: string | undefined): boolean =>
  header !== undefined && header >= modernVersions[0] && /^\d{4}-\d{2}-\d{2}$/.test(header)

export const toLegacyVersion = (version: unknown): LegacyVersion | undefined =>
  legacyVersions.find((known) => known === version)

const isInitialize = (body: unknown): boolean => isObject(body) && own(body, 'method') === 'initialize'

function claimsModern(body: unknown): boolean {
  if (!isObject(body)) return false
  const params = own(body, 'params')
  const meta = isObject(params) ? own(params, '_meta') : undefined
  return isObject(meta) && Object.hasOwn(meta, modernClaim)
}
