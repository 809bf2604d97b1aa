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
  #tell: (reason: string) => void = () => undefined
  #goneReason: string | undefined
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
   * Waits for the guest's hello.
   * @throws Error when it does not come in time, or is not this protocol.
   */
  static async greet(container: Container): Promise<Guest> {
    let hello: (frame: Frame) => void = () => undefined
    const greeted = new Promise<Frame>((resolve) => {
      hello = (frame) => resolve({ ...frame, payload: Buffer.from(frame.payload) })
    })
    const guest = new Guest(container, (frame) => {
      guest.receive(() => {
        throw new GuestProtocolError('a frame that nobody asked for')
      })
      hello(frame)
    })
    const timer = setTimeout(() => guest.close('the guest said nothing'), helloWithinMs)
    try {
      const frame = await Promise.race([greeted, guest.gone])
      if (typeof frame === 'string') throw new Error(`no guest came up: ${frame}`)
      if (frame.kind !== fromGuest.hello || frame.run !== 0) throw new GuestProtocolError('something else before hello')
      const version = u32Of(frame)
      if (version !== guestProtocolVersion)
        throw new Error(`the guest speaks protocol ${version}, not ${guestProtocolVersion}`)
      return guest
    } catch (error) {
      guest.close('the guest was not accepted')
      throw error
    } finally {
      clearTimeout(timer)
    }
  }

  /** Hands every further frame to `receiver`, which throws GuestProtocolError for what must not be. */
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

  #read(chunk: Buffer): void {
    try {
      this.#decoder.push(chunk, (frame) => {
        if (this.#goneReason === undefined) this.#receive(frame)
      })
    } catch (error) {
      if (!(error instanceof GuestProtocolError)) throw error
      this.close(error.message)
    }
  }
}
