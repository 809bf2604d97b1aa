import { monotonicMs } from '../../base/clock.ts'
import { type LanguageFound, spareCommandOf } from '../jails/languages.ts'
import type { Guest } from './guest.ts'
import { encodeForked, type Frame, fromGuest, GuestProtocolError, u32Of } from './guest-channel.ts'

/** `failed`: it was not put under the limits of runs, and is not used. */
export type SpareState = 'none' | 'starting' | 'ready' | 'failed' | 'gone'

/**
 * The interpreter of an unbound slot from which the first Python kernel of a sandbox is forked: one, for one sandbox, so that no other
 * has its hash seed and its addresses. A slot that becomes something else ends it.
 */
export class SpareInterpreter {
  readonly #guest: Guest
  readonly #move: (slotPid: number) => Promise<() => void>
  #state: SpareState = 'none'
  #forget: () => void = () => undefined
  #startedMs = Number.POSITIVE_INFINITY

  /** @param move puts it, by its number in the slot, where runs are limited. Resolves with what forgets that it is there. */
  constructor(guest: Guest, move: (slotPid: number) => Promise<() => void>) {
    this.#guest = guest
    this.#move = move
  }

  get state(): SpareState {
    return this.#state
  }

  /** Since it was started; 0 if it was not. */
  get ageMs(): number {
    return Math.max(0, monotonicMs() - this.#startedMs)
  }

  /** Starts it, in a slot that is not bound. Once; images without a suitable interpreter have none. @param env of every run. */
  start(languages: readonly LanguageFound[], env: Readonly<Record<string, string>>): void {
    const command = spareCommandOf(languages, env)
    if (this.#state !== 'none' || command === undefined) return
    this.#state = 'starting'
    this.#startedMs = monotonicMs()
    this.#guest.receiveFromSpare((frame) => this.#receive(frame))
    this.#guest.send([encodeForked('spare', command)])
  }

  /** BOUNDARY: every frame is checked against what may come now. */
  #receive(frame: Frame): void {
    if (this.#state === 'gone') throw new GuestProtocolError('a spare interpreter that was gone')
    if (frame.kind === fromGuest.spareGone) {
      this.#state = 'gone'
      this.#forget()
      return
    }
    if (this.#state !== 'starting' || frame.kind !== fromGuest.spareReady)
      throw new GuestProtocolError('a spare interpreter that was not requested')
    this.#move(u32Of(frame)).then(
      (forget) => this.#moved(forget),
      // It has ended meanwhile, or is not where it says: the guest ends it with the first jail.
      () => this.#enter('failed'),
    )
  }

  #moved(forget: () => void): void {
    this.#forget = forget
    if (this.#state === 'gone') forget()
    else this.#enter('ready')
  }

  #enter(state: SpareState): void {
    if (this.#state !== 'gone') this.#state = state
  }
}
