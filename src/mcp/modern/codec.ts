import { Refusal } from '../../base/errors.ts'
import { fault, type Log } from '../../observe/log.ts'
import { metaKey } from '../era.ts'
import type { McpReply } from '../handle.ts'
import { errorText, type RequestId, resultText } from '../json-rpc.ts'
import { serverInfo } from '../server-info.ts'

type JsonReply = Extract<McpReply, { kind: 'json' }>

/** How long a client may use what it was told: lists change only with a restart, and then a list is soon asked for again. */
const ttlMs = 60_000

/** Stamps results as this era wants them: what kind they are, from whom, and how long they hold. */
export class Stamp {
  readonly #meta: object

  constructor(serverVersion: string) {
    this.#meta = { [metaKey('serverInfo')]: serverInfo(serverVersion) }
  }

  complete(result: object): string {
    return this.as('complete', result)
  }

  /** What a key sees depends on its profile: nobody may show it to another. */
  cacheable(result: object): string {
    return this.as('complete', { ...result, ttlMs, cacheScope: 'private' })
  }

  as(resultType: 'complete' | 'input_required' | 'task', result: object): string {
    const { _meta: own, ...rest } = result as { _meta?: object }
    return JSON.stringify({ resultType, ...rest, _meta: { ...this.#meta, ...own } })
  }
}

export const resultReply = (id: RequestId, resultJson: string): JsonReply => ({
  kind: 'json',
  status: 200,
  body: resultText(id, resultJson),
})

/**
 * An error that answers a request. The specification names the status of what is wrong with the message itself; what
 * is wrong with what was asked for is a 200 that carries an error, except where time alone helps.
 */
export function errorReply(id: RequestId | null, error: unknown, log: Log): JsonReply {
  const refusal = error instanceof Refusal ? error : new Refusal('fault', { faultId: fault(error, log) })
  const { http, retry } = refusal.row
  const { retryAfterSeconds } = refusal.details
  return {
    kind: 'json',
    status: retry === 'later' || isOfTheMessage(refusal) ? http : 200,
    body: errorText(id, refusal.row.rpc, `${refusal.message} ${refusal.hint}`, dataOf(refusal)),
    ...(typeof retryAfterSeconds === 'number' && { retryAfterSeconds }),
  }
}

/** https://modelcontextprotocol.io/specification/2026-07-28/basic/transports */
function isOfTheMessage({ code }: Refusal): boolean {
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

/** An extension has a prefix in its name; nothing else has. */
const requiredCapabilities = (capability: string): object =>
  capability.includes('/') ? { extensions: { [capability]: {} } } : { [capability]: {} }

/** The JSON-RPC error of a task that failed. */
export function errorObject(error: unknown, log: Log): { code: number; message: string } {
  const refusal = error instanceof Refusal ? error : new Refusal('fault', { faultId: fault(error, log) })
  return { code: refusal.row.rpc, message: `${refusal.message} ${refusal.hint}` }
}
