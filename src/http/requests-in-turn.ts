import type { FastifyInstance } from 'fastify'

/**
 * Requests that begin in one turn of the event loop. Each takes about half a millisecond, so all together hold the loop no
 * longer than it may be held.
 */
const perTurn = 16

/**
 * The same while several organizations send requests. A call passes through the loop about eight times until it is
 * answered, and each time waits for what others begin.
 */
const perSharedTurn = 4

/** Time for which the loop counts as shared after two organizations sent requests in a row, in milliseconds. */
const sharedMs = 200

/** Shares the turns of the event loop: what does not begin in this turn begins in a later one, each owner in turn. */
export class Turns {
  readonly #nowMs: () => number
  /** Started in this turn. */
  #begun = 0
  readonly #owners = new Set<string>()
  /** Owners by turn: the one that waits longest is first. */
  readonly #waiting = new Map<string, (() => void)[]>()
  #isTurning = false
  #lastOwner: string | undefined
  #sharedUntilMs = 0

  /** @param nowMs reads a monotonic clock. */
  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs
  }

  /** Starts work now, or in a later turn. It must not throw. */
  begin(owner: string, work: () => void): void {
    if (owner !== this.#lastOwner) {
      if (this.#lastOwner !== undefined) this.#sharedUntilMs = this.#nowMs() + sharedMs
      this.#lastOwner = owner
    }
    this.#turnLater()
    if (this.#isFree(owner)) {
      this.#begin(owner, work)
      return
    }
    const waiting = this.#waiting.get(owner)
    if (waiting) waiting.push(work)
    else this.#waiting.set(owner, [work])
  }

  /** Resolves in the turn in which work of an owner begins. */
  async turnOf(owner: string): Promise<void> {
    await new Promise<void>((resolve) => this.begin(owner, resolve))
  }

  /** Who has begun nothing in this turn does not wait for others who began much. */
  #isFree(owner: string): boolean {
    if (this.#waiting.size === 0 && this.#begun < this.#limit()) return true
    return !this.#owners.has(owner) && !this.#waiting.has(owner) && this.#begun < 2 * perTurn
  }

  #begin(owner: string, work: () => void): void {
    this.#begun += 1
    this.#owners.add(owner)
    work()
  }

  #limit(): number {
    return this.#waiting.size > 1 || this.#nowMs() < this.#sharedUntilMs ? perSharedTurn : perTurn
  }

  #turnLater(): void {
    if (this.#isTurning) return
    this.#isTurning = true
    setImmediate(() => this.#turn())
  }

  #turn(): void {
    this.#isTurning = false
    this.#begun = 0
    this.#owners.clear()
    const limit = this.#limit()
    while (this.#begun < limit) {
      const [next] = this.#waiting
      if (next === undefined) return
      const [owner, waiting] = next
      const work = waiting.shift()
      this.#waiting.delete(owner)
      if (waiting.length > 0) this.#waiting.set(owner, waiting)
      if (work) this.#begin(owner, work)
    }
    this.#turnLater()
  }
}

/** Lets the requests of one organization take turns with those of others. Their bodies stay with the client until then. */
export function beginRequestsInTurn(app: FastifyInstance, turns: Turns): void {
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    const owner = request.caller?.orgId ?? request.admin?.orgId
    if (owner === undefined) done()
    else turns.begin(owner, () => done())
  })
}
