import type { Refusal } from '../../base/errors.ts'
import type { Log } from '../../observe/log.ts'
import { metaKey } from '../era.ts'
import { errorReply, type JsonReply, toRefusal } from '../json-rpc/encode.ts'
import type { RequestId } from '../json-rpc/message.ts'
import { serverInfo } from '../server-info.ts'

/** How long a client may cache a list. Lists change only when the server restarts. */
const ttlMs = 60_000

/** Encodes results of this era, which carry their type, the server's identity and how long they may be cached. */
export class ResultEncoder {
  readonly #meta: object

  constructor(serverVersion: string) {
    this.#meta = { [metaKey('serverInfo')]: serverInfo(serverVersion) }
  }

  complete(result: object): string {
    return this.as('complete', result)
  }

  /** The scope is private, since a list depends on the profile of the key. */
  cacheable(result: object): string {
    return this.as('complete', { ...result, ttlMs, cacheScope: 'private' })
  }

  as(resultType: 'complete' | 'input_required' | 'task', result: object): string {
    const { _meta: own, ...rest } = result as { _meta?: object }
    return JSON.stringify({ resultType, ...rest, _meta: { ...this.#meta, ...own } })
  }
}

/**
 * Encodes an error as the response to a request. The specification defines the status for a message that is invalid
 * itself. An error of the requested operation has status 200, except where a retry can help.
 */
export function modernError(id: RequestId | null, error: unknown, log: Log): JsonReply {
  const refusal = toRefusal(error, log)
  const { http, retry } = refusal.row
  return errorReply(id, refusal, retry === 'later' || isInvalidMessage(refusal) ? http : 200, dataOf(refusal))
}

/** https://modelcontextprotocol.io/specification/2026-07-28/basic/transports */
function isInvalidMessage({ code }: Refusal): boolean {
  switch (code) {
    case 'parse_error':
    case 'invalid_request':
    case 'method_not_found':
    case 'meta_invalid':
    case 'header_mismatch':
    case 'era_unsupported':
    case 'capability_missing':
      return true
    default:
      return false
  }
}

function dataOf({ code, row, details }: Refusal): object {
  switch (code) {
    case 'era_unsupported':
      return { supported: details.supported, requested: details.requested }
    case 'capability_missing':
      return { requiredCapabilities: requiredCapabilities(String(details.capability)) }
    case 'resource_unknown':
      return { error: row.error, uri: details.uri }
    default:
      return { error: row.error }
  }
}

/** Only names of extensions have a prefix. */
const requiredCapabilities = (capability: string): object =>
  capability.includes('/') ? { extensions: { [capability]: {} } } : { [capability]: {} }
