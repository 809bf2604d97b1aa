import type { ProcessStream, TerminalSize } from '../../base/sandbox.ts'
import { encodeCredit, encodeFrame, GuestProtocolError, u32Of } from '../slots/guest-channel.ts'
import {
  type AgentExit,
  type AgentFrame,
  agentExitOf,
  agentWindowBytes,
  encodeResize,
  encodeSignal,
  fromAgent,
  toAgent,
} from './agent-channel.ts'

/** The events of one process. Called in order; nothing follows `ended` or `notStarted`. */
export interface AgentObserver {
  /** @param pid as processes inside the sandbox see it. */
  started(pid: number): void
  notStarted(reason: string): void
  /** @param bytes valid only during the call: copy what is to be kept. */
  output(stream: ProcessStream, bytes: Uint8Array): void
  ended(exit: AgentExit): void
}

/** Streams to a process. */
export type InputStream = 'stdin' | 'channel'

/** Of the reason why a process was not started. */
const keptReasonBytes = 500

interface Waiting {
  bytes: Uint8Array
  /** Bytes that were sent. */
  sent: number
  taken: PromiseWithResolvers<void>
}

/** Returns what a piece of input that waits counts for, in bytes: a small one is a request that waits, too. */
export const inputCost = (bytes: Uint8Array): number => Math.max(bytes.length, 32 * 1024)

/** One stream to a process, within the window of the agent. */
class Input {
  readonly #send: (bytes: Uint8Array) => void
  readonly #end: () => void
  readonly #queue: Waiting[] = []
  #roomBytes = agentWindowBytes
  #isClosed = false

  constructor(send: (bytes: Uint8Array) => void, end: () => void) {
    this.#send = send
    this.#end = end
  }

  /** The cost of the pieces that were not taken as a whole. */
  get waiting(): number {
    return this.#queue.reduce((sum, { bytes }) => sum + inputCost(bytes), 0)
  }

  write(bytes: Uint8Array): Promise<void> {
    if (this.#isClosed || bytes.length === 0) return Promise.resolve()
    const taken = Promise.withResolvers<void>()
    this.#queue.push({ bytes, sent: 0, taken })
    this.#pump()
    return taken.promise
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#pump()
  }

  /** BOUNDARY: an agent cannot grant more than it was sent. */
  addRoom(bytes: number): void {
    this.#roomBytes += bytes
    if (this.#roomBytes > agentWindowBytes) throw new GuestProtocolError('more room than the window of a process')
    this.#pump()
  }

  /** The process has ended: what it did not read is lost, as in a pipe. */
  abandon(): void {
    this.#isClosed = true
    for (const { taken } of this.#queue.splice(0)) taken.resolve()
  }

  #pump(): void {
    while (this.#roomBytes > 0) {
      const first = this.#queue[0]
      if (first === undefined) break
      const piece = first.bytes.subarray(first.sent, first.sent + this.#roomBytes)
      this.#roomBytes -= piece.length
      first.sent += piece.length
      this.#send(piece)
      if (first.sent < first.bytes.length) continue
      this.#queue.shift()
      first.taken.resolve()
    }
    if (this.#isClosed && this.#queue.length === 0) this.#endOnce()
  }

  #isEnded = false
  #endOnce(): void {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#end()
  }
}

/** A process of a sandbox, from its request until it has ended. */
export class AgentProcess {
  readonly number: number
  readonly #send: (frame: Buffer) => void
  readonly #observer: AgentObserver
  readonly #inputs: Record<InputStream, Input>
  #state: 'starting' | 'running' | 'ended' = 'starting'
  readonly #creditBytes = { output: 0, channel: 0 }

  constructor(number: number, send: (frame: Buffer) => void, observer: AgentObserver) {
    this.number = number
    this.#send = send
    this.#observer = observer
    const input = (kind: number, end: number) =>
      new Input(
        (bytes) => this.#send(encodeFrame(kind, number, bytes)),
        () => this.#send(encodeFrame(end, number)),
      )
    this.#inputs = {
      stdin: input(toAgent.input, toAgent.inputEnd),
      channel: input(toAgent.channel, toAgent.channelEnd),
    }
  }

  get hasEnded(): boolean {
    return this.#state === 'ended'
  }

  /** Returns the cost of the input that was written and that the sandbox did not take. */
  waitingInput(to: InputStream): number {
    return this.#inputs[to].waiting
  }

  /** Resolves when the sandbox took the bytes. */
  write(to: InputStream, bytes: Uint8Array): Promise<void> {
    return this.#inputs[to].write(bytes)
  }

  close(what: InputStream): void {
    this.#inputs[what].close()
  }

  /** Lets it write so many more bytes. @param of both standard streams together, or the channel. */
  grant(of: 'output' | 'channel', bytes: number): void {
    if (this.hasEnded || bytes <= 0) return
    this.#creditBytes[of] += bytes
    this.#send(encodeCredit(of === 'output' ? toAgent.credit : toAgent.channelCredit, this.number, bytes))
  }

  signal(signal: number, target: 'group' | 'one'): void {
    if (!this.hasEnded) this.#send(encodeSignal(this.number, signal, target))
  }

  resize(size: TerminalSize): void {
    if (!this.hasEnded) this.#send(encodeResize(this.number, size))
  }

  /** BOUNDARY: every frame is checked against what may come now. */
  take(frame: AgentFrame): void {
    switch (frame.kind) {
      case fromAgent.started:
        this.#enter('starting', 'running')
        this.#observer.started(u32Of(frame))
        return
      case fromAgent.notStarted:
        this.#enter('starting', 'ended')
        this.#abandonInputs()
        this.#observer.notStarted(frame.payload.toString('utf8', 0, keptReasonBytes))
        return
      case fromAgent.stdout:
        this.#output('stdout', frame.payload)
        return
      case fromAgent.stderr:
        this.#output('stderr', frame.payload)
        return
      case fromAgent.channel:
        this.#output('channel', frame.payload)
        return
      case fromAgent.inputRoom:
        this.#inputs.stdin.addRoom(u32Of(frame))
        return
      case fromAgent.channelRoom:
        this.#inputs.channel.addRoom(u32Of(frame))
        return
      case fromAgent.ended:
        this.#enter('running', 'ended')
        this.#abandonInputs()
        this.#observer.ended(agentExitOf(frame))
        return
    }
  }

  /** The sandbox is gone. */
  abandon(): void {
    this.#state = 'ended'
    this.#abandonInputs()
  }

  #output(stream: ProcessStream, bytes: Buffer): void {
    if (this.#state !== 'running') throw new GuestProtocolError('output of a process that does not run')
    if (bytes.length === 0) throw new GuestProtocolError('output of nothing')
    const of = stream === 'channel' ? 'channel' : 'output'
    this.#creditBytes[of] -= bytes.length
    if (this.#creditBytes[of] < 0) throw new GuestProtocolError('more output than a process had credit for')
    this.#observer.output(stream, bytes)
  }

  #enter(from: 'starting' | 'running', to: 'running' | 'ended'): void {
    if (this.#state !== from) throw new GuestProtocolError(`a process that is ${this.#state} became ${to}`)
    this.#state = to
  }

  #abandonInputs(): void {
    this.#inputs.stdin.abandon()
    this.#inputs.channel.abandon()
  }
}
