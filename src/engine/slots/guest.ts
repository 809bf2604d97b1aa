import {
  type Frame,
  FrameDecoder,
  fromGuest,
  GuestProtocolError,
  guestProtocolVersion,
  u32Of,
} from './guest-channel.ts'
import type { Container } from './runtime.ts'

/** A guest that has not said hello by then never will; it takes milliseconds. */
const helloWithinMs = 10_000

/**
 * The live channel to one guest. BOUNDARY: all that arrives is hostile input; the first fault in it ends the channel,
 * and with it the slot.
 */
export class Guest {
  readonly #container: Container
  readonly #decoder = new FrameDecoder()
  #receive: (frame: Frame) => void
  #receiveFromZygote: ((frame: Frame) => void) | undefined
  #receiveFromSpare: ((frame: Frame) => void) | undefined
  #tell: (reason: string) => void = () => undefined
  #goneReason: string | undefined
  #jailerPid = 0
  /** Resolves with the reason when the channel has ended, from whichever side. */
  readonly gone: Promise<string>

  private constructor(container: Container, receive: (frame: Frame) => void) {
    this.#container = container
    this.#receive = receive
    this.gone = new Promise((resolve) => {
      this.#tell = resolve
    })
    container.channel.on('data', (chunk: Buffer) => this.#read(chunk))
    const ended = () => this.close(container.stderr().trim() || 'the guest closed its channel')
    container.channel.on('close', ended)
    if (container.channel.destroyed || container.channel.readableEnded) ended() // It was quicker than we.
    container.channel.resume()
  }

  /**
   * Waits for the guest's hello and for the name of its jailer.
   * @throws Error when they do not come in time, or are not this protocol.
   */
  static async greet(container: Container): Promise<Guest> {
    const [hello, forker] = [Promise.withResolvers<number>(), Promise.withResolvers<number>()]
    const expected = [
      { kind: fromGuest.hello, take: hello.resolve },
      { kind: fromGuest.forker, take: forker.resolve },
    ]
    const guest = new Guest(container, (frame) => {
      const next = expected.shift()
      if (next === undefined) throw new GuestProtocolError('a frame that was not requested')
      if (frame.kind !== next.kind || frame.run !== 0)
        throw new GuestProtocolError(expected.length > 0 ? 'something else before hello' : 'no jailer after hello')
      next.take(u32Of(frame))
    })
    const timer = setTimeout(() => guest.close('the guest said nothing'), helloWithinMs)
    const gone = guest.gone.then((reason) => {
      throw new Error(`no guest came up: ${reason}`)
    })
    try {
      const version = await Promise.race([hello.promise, gone])
      if (version !== guestProtocolVersion)
        throw new Error(`the guest speaks protocol ${version}, not ${guestProtocolVersion}`)
      guest.#jailerPid = await Promise.race([forker.promise, gone])
      return guest
    } catch (error) {
      guest.close('the guest was not accepted')
      throw error
    } finally {
      gone.catch(() => undefined)
      clearTimeout(timer)
    }
  }

  /** The process that jails are cloned from, by its number in the slot. */
  get jailerPid(): number {
    return this.#jailerPid
  }

  /** Passes every frame about the zygote to `receiver`, independently of the current run. */
  receiveFromZygote(receiver: (frame: Frame) => void): void {
    this.#receiveFromZygote = receiver
  }

  /** The same for frames about the spare interpreter. */
  receiveFromSpare(receiver: (frame: Frame) => void): void {
    this.#receiveFromSpare = receiver
  }

  /** Hands every further frame of a run to `receiver`, which throws GuestProtocolError for what must not be. */
  receive(receiver: (frame: Frame) => void): void {
    this.#receive = receiver
  }

  /** Sends frames at once; after the end of the channel they go nowhere. */
  send(frames: readonly Buffer[]): void {
    if (this.#goneReason !== undefined) return
    this.#container.channel.write(frames.length === 1 ? frames[0] : Buffer.concat(frames))
  }

  /** Ends the channel; a guest whose input ends exits, and the kernel ends the slot with it. Idempotent. */
  close(reason: string): void {
    if (this.#goneReason !== undefined) return
    this.#goneReason = reason
    this.#container.channel.destroy()
    this.#tell(reason)
  }

  #receiverOf(frame: Frame): (frame: Frame) => void {
    if (frame.run !== 0) return this.#receive
    const isOfHost = frame.kind === fromGuest.forker || frame.kind === fromGuest.zygoteGone
    const isOfSpare = frame.kind === fromGuest.spareReady || frame.kind === fromGuest.spareGone
    return (isOfHost ? this.#receiveFromZygote : isOfSpare ? this.#receiveFromSpare : undefined) ?? this.#receive
  }

  #read(chunk: Buffer): void {
    try {
      this.#decoder.push(chunk, (frame) => {
        if (this.#goneReason === undefined) this.#receiverOf(frame)(frame)
      })
    } catch (error) {
      if (!(error instanceof GuestProtocolError)) throw error
      this.close(error.message)
    }
  }
}
