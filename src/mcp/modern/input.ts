import { createHash } from 'node:crypto'
import { Refusal } from '../../base/errors.ts'
import type { Caller } from '../../core/caller.ts'
import type { Core } from '../../core/core.ts'
import type { InputRequests, InputResponses } from '../../tools/request-context.ts'
import { checkAnswer } from '../client-answers.ts'
import { isObject, own, type Params } from '../json-rpc.ts'

/** Long enough for a person to come back from lunch. */
const stateLifeMs = 60 * 60 * 1000

/**
 * The answers that a request brings along: those of its own round, and those of earlier rounds in the state that its
 * client carried. https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr
 */
export class Input {
  readonly #core: Core
  readonly #caller: Caller
  readonly #purpose: () => string
  readonly #answers: Params

  /** @throws Refusal `invalid_argument`, `state_invalid`. */
  constructor(core: Core, caller: Caller, method: string, params: Params) {
    this.#core = core
    this.#caller = caller
    // Made only where there is a state: most calls have none, and arguments may be long.
    this.#purpose = () => purposeOf(method, params)
    const state = own(params, 'requestState')
    const given = Object.hasOwn(params, 'inputResponses') ? own(params, 'inputResponses') : {}
    if (!isObject(given))
      throw new Refusal('invalid_argument', { field: 'inputResponses', problem: 'must be an object' })
    if (state !== undefined && typeof state !== 'string') throw new Refusal('state_invalid')
    const earlier = state === undefined ? {} : core.sealing.open(caller, this.#purpose(), state)
    this.#answers = { ...(earlier as Params), ...given }
  }

  /**
   * The answers to these requests, if all are there.
   * @returns otherwise those that are still to be asked for.
   * @throws Refusal `input_invalid` for an answer that is none.
   */
  answersTo(requests: InputRequests): { answers: InputResponses } | { missing: InputRequests } {
    const missing = Object.entries(requests).filter(([name]) => own(this.#answers, name) === undefined)
    if (missing.length > 0) return { missing: Object.fromEntries(missing) }
    const answers = Object.entries(requests).map(
      ([name, request]) => [name, checkAnswer(name, request, own(this.#answers, name))] as const,
    )
    return { answers: Object.fromEntries(answers) }
  }

  /** What the client brings back with its next round. */
  state(): string {
    return this.#core.sealing.seal(this.#caller, this.#purpose(), this.#answers, stateLifeMs)
  }
}

/** A state serves the very request it was given out for, and no other. */
function purposeOf(method: string, params: Params): string {
  const target = own(params, 'name') ?? own(params, 'uri')
  const asked = JSON.stringify([method, target, own(params, 'arguments') ?? {}])
  return `input ${createHash('sha256').update(asked).digest('base64url')}`
}
