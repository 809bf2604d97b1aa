import { Refusal, type RefusalCode, refusals } from '../../base/errors.ts'
import type { FromRunner } from '../protocol/messages.ts'

/** Requests that wait for their answer, by number. */
export class PendingRequests {
  readonly #pending = new Map<number, PromiseWithResolvers<FromRunner>>()

  add(request: number): Promise<FromRunner> {
    const pending = Promise.withResolvers<FromRunner>()
    this.#pending.set(request, pending)
    return pending.promise
  }

  answer(request: number, answer: FromRunner): void {
    this.#take(request)?.resolve(answer)
  }

  refuse(request: number, refusal: Refusal): void {
    this.#take(request)?.reject(refusal)
  }

  /** The connection is lost. */
  lose(reason: string): void {
    for (const pending of this.#pending.values()) pending.reject(new Refusal('unavailable', { reason }))
    this.#pending.clear()
  }

  #take(request: number): PromiseWithResolvers<FromRunner> | undefined {
    const pending = this.#pending.get(request)
    this.#pending.delete(request)
    return pending
  }
}

/** Returns the refusal of a runner, which may be newer than this process. */
export function refusalOf({ code, details }: { code: RefusalCode; details: Refusal['details'] }): Refusal {
  return code in refusals ? new Refusal(code, details) : new Refusal('unavailable', { reason: 'the runner refused' })
}
