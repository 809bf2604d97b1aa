import type { IncomingHttpHeaders } from 'node:http'
import { Readable } from 'node:stream'
import type { Agent, Dispatcher } from 'undici'
import { perTurn, smallBytes, waitAfter } from '../base/small-pieces.ts'
import type { UpstreamAnswer } from './exchange.ts'
import { UpstreamTimeout } from './failures.ts'

/** Bytes that are held while nothing takes them; then the upstream waits. */
const heldMaxBytes = 64 * 1024

/** What a body is passed on to. */
export interface BodySink {
  /**
   * Takes what has arrived. It must not throw.
   * @param bytes absent only if the body ends without more.
   * @param isLast whether the body is complete.
   * @returns whether there is room for more; if not, nothing is passed on until `resume`.
   */
  take(bytes: Buffer | undefined, isLast: boolean): boolean
  /** Called at most once, instead of the last piece, if the body is interrupted. */
  fail(error: unknown): void
}

/**
 * A response whose body is passed on without a stream in between: what arrives in one turn of the event loop is one piece,
 * and a response that arrives at once is one piece as a whole. Its body can also be read as a stream, but only once.
 */
export class DirectAnswer implements UpstreamAnswer, Dispatcher.DispatchHandler {
  status = 0
  headers: IncomingHttpHeaders = {}
  readonly #begun: (error?: unknown) => void
  readonly #ended: () => void
  #controller: Dispatcher.DispatchController | undefined
  #held: Buffer[] = []
  #heldBytes = 0
  /** Small pieces of this turn. */
  #small = 0
  #isTurning = false
  #isWaiting = false
  #isBlocked = false
  #isComplete = false
  /** Whether everything was passed on. */
  #isDone = false
  #failure: { error: unknown } | undefined
  #sink: BodySink | undefined
  #stream: Readable | undefined

  /** @param begun called when the headers have arrived, or with the reason why none will. @param ended called at the end. */
  constructor(begun: (error?: unknown) => void, ended: () => void) {
    this.#begun = begun
    this.#ended = ended
  }

  /** The body as a stream. */
  get body(): Readable {
    this.#stream ??= this.#toStream()
    return this.#stream
  }

  /** Returns what there is of the body if it is complete and nothing takes it yet. It counts as taken then. */
  takeWhole(): Buffer[] | undefined {
    if (!this.#isComplete || this.#sink !== undefined || this.#isDone) return undefined
    this.#isDone = true
    return this.#held
  }

  /** Passes the body on, beginning with what has arrived. */
  forward(sink: BodySink): void {
    this.#sink = sink
    this.#flush()
  }

  /** Continues after the sink had no room. */
  resume(): void {
    this.#isBlocked = false
    this.#flush()
  }

  /** Closes the connection, unless the body has ended. */
  abort(error: unknown): void {
    if (this.#isComplete || this.#failure) return
    if (this.#controller) this.#controller.abort(error as Error)
    else this.onResponseError(undefined, error as Error)
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    if (this.#failure) controller.abort(this.#failure.error as Error)
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    // Of an informational response, nothing is passed on.
    if (status < 200) return
    this.status = status
    this.headers = headers
    this.#begun()
  }

  onResponseData(_controller: Dispatcher.DispatchController, piece: Buffer): void {
    this.#held.push(piece)
    this.#heldBytes += piece.length
    if (piece.length >= smallBytes) {
      this.#flush()
      return
    }
    this.#small += 1
    if (!this.#isTurning) {
      this.#isTurning = true
      setImmediate(() => this.#endTurn())
    }
    this.#steer()
  }

  onResponseEnd(): void {
    this.#isComplete = true
    this.#flush()
    this.#ended()
  }

  onResponseError(_controller: Dispatcher.DispatchController | undefined, error: Error): void {
    if (this.#failure) return
    this.#failure = { error }
    if (this.status === 0) this.#begun(error)
    else this.#flush()
    this.#ended()
  }

  /** BOUNDARY: the upstream decides on the size of chunks; see `joinSmallPieces`. */
  #endTurn(): void {
    const waitMs = waitAfter(this.#small)
    this.#isTurning = false
    this.#small = 0
    if (waitMs > 0) {
      this.#isWaiting = true
      setTimeout(() => {
        this.#isWaiting = false
        this.#steer()
      }, waitMs).unref()
    }
    this.#flush()
  }

  #flush(): void {
    const sink = this.#sink
    if (sink === undefined || this.#isBlocked || this.#isDone) {
      this.#steer()
      return
    }
    const held = this.#held
    const bytes = held.length > 1 ? Buffer.concat(held, this.#heldBytes) : held[0]
    this.#held = []
    this.#heldBytes = 0
    this.#isDone = this.#isComplete || this.#failure !== undefined
    if (bytes !== undefined || this.#isComplete) this.#isBlocked = !sink.take(bytes, this.#isComplete)
    if (this.#failure) sink.fail(this.#failure.error)
    this.#steer()
  }

  /** Lets the upstream send or wait. */
  #steer(): void {
    const controller = this.#controller
    if (controller === undefined || this.#isComplete || this.#failure) return
    const mustWait =
      this.#isWaiting ||
      this.#small > perTurn ||
      this.#heldBytes >= heldMaxBytes ||
      (this.#isBlocked && this.#heldBytes > 0)
    if (mustWait) controller.pause()
    else controller.resume()
  }

  #toStream(): Readable {
    const stream = new Readable({
      read: () => this.resume(),
      destroy: (error, done) => {
        this.abort(error ?? new Error('the response was closed'))
        done(error)
      },
    })
    this.forward({
      take: (bytes, isLast) => {
        const hasRoom = bytes === undefined || stream.push(bytes)
        if (isLast) stream.push(null)
        return hasRoom
      },
      fail: (error) => stream.destroy(error as Error),
    })
    return stream
  }
}

/**
 * Sends a request.
 * @param timeoutMs after which the response must have begun.
 * @returns the response, as soon as its headers have arrived.
 * @throws UpstreamTimeout, the reason of the signal, or the error of the connection.
 */
export function requestDirectly(
  agent: Agent,
  options: Dispatcher.DispatchOptions,
  { signal, timeoutMs }: { signal: AbortSignal; timeoutMs: number },
): Promise<DirectAnswer> {
  return new Promise((resolve, reject) => {
    const leave = () => answer.abort(signal.reason)
    const timer = setTimeout(() => answer.abort(new UpstreamTimeout()), timeoutMs)
    const answer: DirectAnswer = new DirectAnswer(
      (error) => {
        clearTimeout(timer)
        if (error === undefined) resolve(answer)
        else reject(error as Error)
      },
      () => signal.removeEventListener('abort', leave),
    )
    signal.addEventListener('abort', leave, { once: true })
    if (signal.aborted) leave()
    else agent.dispatch(options, answer)
  })
}
