import { NetworkRefused } from './decision.ts'

/**
 * Lookups at once: half of the threads of the broker, as many as the runtime uses for them. Of one organization: a name server
 * that does not answer holds each for many seconds.
 */
const usual = { active: 32, activePerOrg: 4 }
const waitingPerOrgMax = 512

interface Queue {
  active: number
  waiting: (() => void)[]
}

/** Lets the lookups of an organization whose name servers do not answer delay its own lookups only. */
export class FairLookups {
  /** In the order in which they get the next place. */
  readonly #orgs = new Map<string, Queue>()
  readonly #tooMany: string
  readonly #max: typeof usual
  #active = 0

  /** @param tooMany the message of a refusal. @param max how many work at once. */
  constructor(tooMany = 'too many names of this organization are being resolved', max = usual) {
    this.#tooMany = tooMany
    this.#max = max
  }

  /** Performs a lookup when it has a place. @throws NetworkRefused `unresolved` when too many wait, and what `work` throws. */
  async run<Result>(orgId: string, work: () => Promise<Result>): Promise<Result> {
    const queue = this.#orgs.get(orgId) ?? { active: 0, waiting: [] }
    this.#orgs.set(orgId, queue)
    if (queue.waiting.length >= waitingPerOrgMax) throw new NetworkRefused('unresolved', this.#tooMany)
    const place = new Promise<void>((resolve) => queue.waiting.push(resolve))
    this.#next()
    await place
    try {
      return await work()
    } finally {
      this.#active -= 1
      queue.active -= 1
      if (queue.active === 0 && queue.waiting.length === 0) this.#orgs.delete(orgId)
      this.#next()
    }
  }

  #next(): void {
    for (const [orgId, queue] of [...this.#orgs]) {
      if (this.#active >= this.#max.active) return
      if (queue.active >= this.#max.activePerOrg) continue
      const start = queue.waiting.shift()
      if (start === undefined) continue
      this.#active += 1
      queue.active += 1
      this.#orgs.delete(orgId)
      this.#orgs.set(orgId, queue)
      start()
    }
  }
}
