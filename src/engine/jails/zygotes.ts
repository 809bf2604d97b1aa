import { monotonicMs } from '../../base/clock.ts'
import type { Guest } from '../slots/guest.ts'
import { encodeForked, type Frame, fromGuest, GuestProtocolError, u32Of } from '../slots/guest-channel.ts'
import { type LanguageFound, zygoteCommandOf } from './languages.ts'

/** `none`: the language has no host, or its host did not hold; its runs are started afresh, which always works. */
export type ZygoteState = 'none' | 'starting' | 'ready'

/** Imports take their time; one that takes longer is no use. */
const readyWithinMs = 60_000

/**
 * The language hosts of one slot: interpreters that are started once, after the slot was bound, and forked for each
 * run. Python has one.
 */
export class Zygotes {
  readonly #guest: Guest
  readonly #env: Readonly<Record<string, string>>
  readonly #move: (slotPid: number) => Promise<void>
  #python: ZygoteState | undefined
  #onChange: () => void = () => undefined
  #problem: string | undefined
  #lost = false
  #timer: NodeJS.Timeout | undefined
  #startedMs: number | undefined

  /**
   * @param env variables that every run of the slot finds.
   * @param move puts a host, by its number in the slot, where runs are limited.
   */
  constructor(guest: Guest, env: Readonly<Record<string, string>>, move: (slotPid: number) => Promise<void>) {
    this.#guest = guest
    this.#env = env
    this.#move = move
    void guest.gone.then(() => clearTimeout(this.#timer))
  }

  /** Whether a host was there and is not any more. */
  get lost(): boolean {
    return this.#lost
  }

  /** Since the oldest zygote was started; 0 without a zygote. */
  get ageMs(): number {
    return this.#startedMs === undefined ? 0 : monotonicMs() - this.#startedMs
  }

  /** Why a host is not there, for the log. */
  get problem(): string | undefined {
    return this.#problem
  }

  /**
   * Starts the host of a language at the first call.
   * @param preload names of modules that it imports.
   * @param onChange called once, when it is ready or given up.
   */
  of(found: LanguageFound, preload: readonly string[], onChange: () => void): ZygoteState {
    const command = zygoteCommandOf(found, preload, this.#env)
    if (command === undefined) return 'none'
    this.#onChange = onChange
    if (this.#python === undefined) {
      this.#python = 'starting'
      this.#startedMs = monotonicMs()
      this.#guest.receiveFromZygote((frame) => this.#receive(frame))
      this.#guest.send([encodeForked('zygote', command)])
      this.#timer = setTimeout(() => this.#settle('none', 'it was not ready in time'), readyWithinMs)
    }
    return this.#python
  }

  /** BOUNDARY: every frame is checked against what may come now. */
  #receive(frame: Frame): void {
    if (frame.kind === fromGuest.zygoteGone) {
      this.#lost = this.#python === 'ready'
      this.#settle('none', frame.payload.toString('utf8', 0, 500))
      return
    }
    if (this.#python !== 'starting') throw new GuestProtocolError('a zygote that was not requested')
    this.#move(u32Of(frame)).then(
      () => this.#settle('ready', undefined),
      (error: Error) =>
        this.#guest.close(`the language host could not be put under the limits of runs: ${error.message}`),
    )
  }

  #settle(state: ZygoteState, problem: string | undefined): void {
    if (this.#python === state || (this.#python === 'none' && state === 'ready')) return
    clearTimeout(this.#timer)
    this.#python = state
    this.#problem = problem
    this.#onChange()
  }
}
