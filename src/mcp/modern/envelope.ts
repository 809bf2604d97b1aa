import { Refusal } from '../../base/errors.ts'
import type { Offer } from '../../tools/catalog.ts'
import { ClientCapabilities, type LogLevel, logLevels } from '../../tools/request-context.ts'
import { metaKey, modernVersions } from '../era.ts'
import type { HeaderOf } from '../handle.ts'
import { isObject, own, type Params, type RequestId } from '../json-rpc/message.ts'
import { progressTokenOf } from '../params.ts'
import { headerMatches } from './header-value.ts'

/** The metadata that each request of this era carries. */
export interface Envelope {
  client: ClientCapabilities
  /** Lowest level of log messages that the client wants; none if undefined. */
  logLevel: LogLevel | undefined
  progressToken: RequestId | undefined
}

/**
 * Reads `_meta` and compares the headers with the body: proxies route by the headers, so a body that differs from them
 * must be refused. https://modelcontextprotocol.io/specification/2026-07-28/basic/transports
 * @throws Refusal `meta_invalid`, `header_mismatch`, `era_unsupported`.
 */
export function readEnvelope(method: string, params: Params, header: HeaderOf, offer: Offer): Envelope {
  const meta = own(params, '_meta')
  if (!isObject(meta)) throw metaInvalid('protocolVersion', 'is missing, as is all of _meta')
  checkVersion(meta, header)
  checkHeader('Mcp-Method', header('mcp-method'), method)
  const name = nameOf(method, params)
  if (name !== undefined) checkHeader('Mcp-Name', header('mcp-name'), name)
  if (method === 'tools/call') checkMirrored(params, header, offer)
  return {
    client: clientOf(meta),
    logLevel: logLevelOf(meta),
    progressToken: progressTokenOf(meta),
  }
}

function checkVersion(meta: Params, header: HeaderOf): void {
  const claimed = own(meta, keys.protocolVersion)
  if (typeof claimed !== 'string') throw metaInvalid('protocolVersion', 'must be a string')
  checkHeader('MCP-Protocol-Version', header('mcp-protocol-version'), claimed)
  if (!modernVersions.some((known) => known === claimed)) {
    throw new Refusal('era_unsupported', { requested: claimed.slice(0, 64), supported: modernVersions })
  }
}

function checkHeader(header: string, given: string | undefined, expected: string): void {
  if (given === undefined) throw new Refusal('header_mismatch', { header, problem: 'is missing' })
  if (!headerMatches(given, expected)) {
    throw new Refusal('header_mismatch', { header, problem: 'does not match the body' })
  }
}

/** Returns the value that `Mcp-Name` repeats, if the method has one. */
function nameOf(method: string, params: Params): string | undefined {
  const field = nameFields.get(method)
  const value = field === undefined ? undefined : own(params, field)
  return typeof value === 'string' ? value : undefined
}

const nameFields: ReadonlyMap<string, string> = new Map([
  ['tools/call', 'name'],
  ['prompts/get', 'name'],
  ['resources/read', 'uri'],
  ['tasks/get', 'taskId'],
  ['tasks/update', 'taskId'],
  ['tasks/cancel', 'taskId'],
])

function checkMirrored(params: Params, header: HeaderOf, offer: Offer): void {
  const tool = own(params, 'name')
  // An unknown tool has no mirrored arguments; the call itself refuses it.
  for (const { path, header: suffix } of offer.mirrored(typeof tool === 'string' ? tool : '')) {
    const name = `Mcp-Param-${suffix}`
    const given = header(name.toLowerCase())
    const value = path.reduce<unknown>(
      (object, property) => (isObject(object) ? own(object, property) : undefined),
      own(params, 'arguments'),
    )
    if (value === undefined || value === null) {
      if (given === undefined) continue
      throw new Refusal('header_mismatch', { header: name, problem: 'repeats an argument that is missing' })
    }
    checkHeader(name, given, String(value))
  }
}

/** Computed once, since looking up a concatenated name is slower. */
const keys = {
  protocolVersion: metaKey('protocolVersion'),
  clientCapabilities: metaKey('clientCapabilities'),
  logLevel: metaKey('logLevel'),
}

function clientOf(meta: Params): ClientCapabilities {
  const declared = own(meta, keys.clientCapabilities)
  if (declared === undefined) throw metaInvalid('clientCapabilities', 'is missing')
  if (!isObject(declared)) throw metaInvalid('clientCapabilities', 'must be an object')
  return new ClientCapabilities(declared)
}

function logLevelOf(meta: Params): LogLevel | undefined {
  const value = own(meta, keys.logLevel)
  if (value === undefined || value === null) return undefined
  const level = logLevels.find((known) => known === value)
  if (level === undefined) throw metaInvalid('logLevel', `must be one of ${logLevels.join(', ')}`)
  return level
}

const metaInvalid = (key: string, problem: string): Refusal => new Refusal('meta_invalid', { key, problem })
