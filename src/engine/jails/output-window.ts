import { encodeCredit, GuestProtocolError, toGuest } from '../slots/guest-channel.ts'
import { creditWindowBytes } from '../slots/run-slot.ts'

/** The output of a jail that its guest may send before more of it was read. */
export class OutputWindow {
  readonly #send: (frame: Buffer) => void
  readonly #number: number
  #creditBytes = creditWindowBytes
  #owedBytes = 0
  #pause: NodeJS.Timeout | undefined

  /** @param number of the jail. @param send a frame to its guest. */
  constructor(number: number, send: (frame: Buffer) => void) {
    this.#number = number
    this.#send = send
  }

  /** Counts output that has arrived. @throws GuestProtocolError if it was not allowed. */
  take(bytes: number): void {
    this.#creditBytes -= bytes
    if (this.#creditBytes < 0) throw new GuestProtocolError('more output than it had credit for')
    this.#owedBytes += bytes
  }

  /** Lets as much follow as has arrived, once that is worth a message. @param pauseMs time until then; 0: at once. */
  giveBack(pauseMs: () => number = () => 0): void {
    if (this.#owedBytes < creditWindowBytes / 2 || this.#pause) return
    const ms = pauseMs()
    if (ms > 0) this.#pause = setTimeout(() => this.endPause(), ms)
    else this.#pay()
  }

  /** Lets it follow now if that was put off. */
  endPause(): void {
    if (this.#pause === undefined) return
    this.close()
    this.#pay()
  }

  /** Nothing follows any more. */
  close(): void {
    clearTimeout(this.#pause)
    this.#pause = undefined
  }

  #pay(): void {
    this.#send(encodeCredit(toGuest.credit, this.#number, this.#owedBytes))
    this.#creditBytes += this.#owedBytes
    this.#owedBytes = 0
  }
}
