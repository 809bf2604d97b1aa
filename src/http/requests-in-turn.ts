import type { FastifyInstance } from 'fastify'

/**
 * Requests of one organization that begin in one turn of the event loop. Each takes about half a millisecond, so all of
 * one organization together keep others waiting for about as long as the loop may be held.
 */
const perTurn = 16

/** Shares the turns of the event loop: what is beyond the share of its owner begins in a later turn, in order. */
export class Turns {
  /** Started in this turn, by owner. */
  readonly #begun = new Map<string, number>()
  readonly #waiting = new Map<string, (() => void)[]>()
  #isTurning = false

  /** Starts work now, or in a later turn. It must not throw. */
  begin(owner: string, work: () => void): void {
    const begun = this.#begun.get(owner) ?? 0
    this.#turnLater()
    if (begun < perTurn) {
      this.#begun.set(owner, begun + 1)
      work()
      return
    }
    const waiting = this.#waiting.get(owner)
    if (waiting) waiting.push(work)
    else this.#waiting.set(owner, [work])
  }

  #turnLater(): void {
    if (this.#isTurning) return
    this.#isTurning = true
    setImmediate(() => this.#turn())
  }

  #turn(): void {
    this.#isTurning = false
    this.#begun.clear()
    for (const [owner, waiting] of this.#waiting) {
      const next = waiting.splice(0, perTurn)
      if (waiting.length === 0) this.#waiting.delete(owner)
      this.#begun.set(owner, next.length)
      this.#turnLater()
      for (const work of next) work()
    }
  }
}

/** Lets the requests of one organization take turns with those of others. Their bodies stay with the client until then. */
export function beginRequestsInTurn(app: FastifyInstance): void {
  const turns = new Turns()
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    const owner = request.caller?.orgId ?? request.admin?.orgId
    if (owner === undefined) done()
    else turns.begin(owner, () => done())
  })
}
