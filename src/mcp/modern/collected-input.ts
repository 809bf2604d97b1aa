import { createHash } from 'node:crypto'
import { Refusal } from '../../base/errors.ts'
import type { Caller } from '../../core/caller.ts'
import type { Core } from '../../core/core.ts'
import type { InputRequests, InputResponses } from '../../tools/request-context.ts'
import { checkInputResponse } from '../input-response.ts'
import { own, type Params } from '../json-rpc/message.ts'
import { optionalObjectParam } from '../params.ts'

/** Long enough for a person to answer. */
const stateLifeMs = 60 * 60 * 1000

/**
 * The responses that a request carries: those of its own round, and those of earlier rounds in the sealed state.
 * https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr
 */
export class CollectedInput {
  readonly #core: Core
  readonly #caller: Caller
  readonly #purpose: () => string
  readonly #responses: Params

  /** @throws Refusal `invalid_argument`, `state_invalid`. */
  constructor(core: Core, caller: Caller, method: string, params: Params) {
    this.#core = core
    this.#caller = caller
    // Computed only if there is a state: most calls have none, and arguments can be long.
    this.#purpose = () => purposeOf(method, params)
    const state = own(params, 'requestState')
    const current = optionalObjectParam(params, 'inputResponses')
    if (state !== undefined && typeof state !== 'string') throw new Refusal('state_invalid')
    const earlier = state === undefined ? {} : core.sealing.open(caller, this.#purpose(), state)
    this.#responses = { ...(earlier as Params), ...current }
  }

  /**
   * Returns the responses to these requests if all have arrived, otherwise the requests without a response.
   * @throws Refusal `input_invalid`.
   */
  responsesTo(requests: InputRequests): { responses: InputResponses } | { missing: InputRequests } {
    const missing = Object.entries(requests).filter(([name]) => own(this.#responses, name) === undefined)
    if (missing.length > 0) return { missing: Object.fromEntries(missing) }
    const responses = Object.entries(requests).map(
      ([name, request]) => [name, checkInputResponse(name, request, own(this.#responses, name))] as const,
    )
    return { responses: Object.fromEntries(responses) }
  }

  /** Returns the sealed state that the client sends with its next round. */
  state(): string {
    return this.#core.sealing.seal(this.#caller, this.#purpose(), this.#responses, stateLifeMs)
  }
}

/** Binds a state to the request that it was issued for. */
function purposeOf(method: string, params: Params): string {
  const target = own(params, 'name') ?? own(params, 'uri')
  const request = JSON.stringify([method, target, own(params, 'arguments') ?? {}])
  return `input ${createHash('sha256').update(request).digest('base64url')}`
}
