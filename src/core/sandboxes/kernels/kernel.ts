import { randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type { AsyncQueue } from '../../../base/async-queue.ts'
import { HeadAndTail } from '../../../base/head-and-tail.ts'
import type { Stream } from '../../../base/run.ts'
import type { ProcessEnding, ProcessEvent } from '../../../base/sandbox.ts'
import type { SandboxProcesses } from '../../../runner/protocol/sandboxes.ts'
import { parseDisplay } from './answers.ts'
import type { CallEvent } from './calls.ts'
import type { FrameMemory } from './frame-memory.ts'
import { encodeFrame, type Frame, FrameReader } from './frames.ts'
import { MarkedStream } from './marked-stream.ts'

/** Output between calls, for example of threads, that is kept for the next call, in bytes per stream. */
const betweenBytes = 64 * 1024

/** Values that one call can display, and their size in bytes: more are dropped. */
const displaysMax = 64
const displayBytesMax = 32 * 1024 * 1024

/** Time that output may follow the answer after some of it was dropped, and the mark perhaps with it. */
const lateMarkMs = 250

/**
 * Frames that are handled without a pause, and its length: code that sends as many as it can, of a few bytes each, would
 * keep the event loop busy for everyone. A call that displays this many values waits for a hundredth of a second.
 */
const framesPerPause = 256
const pauseMs = 10

/** How an exchange with a kernel ended: with its answer, or with the end of its process. */
export type Outcome = { kind: 'answered'; frame: Frame } | { kind: 'process_ended'; ending: ProcessEnding }

type Shown = Exclude<CallEvent, { kind: 'ended' }>

interface Exchange {
  nonce: string
  answerKind: string
  /** Receives the output; undefined if it is dropped. */
  events: AsyncQueue<CallEvent> | undefined
  frame?: Frame
  /** Streams that lost output, and perhaps their mark. */
  hasGap: Set<Stream>
  displays: number
  displayBytes: number
  finished: PromiseWithResolvers<Outcome>
}

export const newNonce = (): string => randomBytes(12).toString('hex')

/** A running kernel: one exchange at a time. It reads the output of the process until that ends. */
export class Kernel {
  readonly #processes: SandboxProcesses
  readonly #sandboxId: string
  readonly processId: number
  readonly #frames = new FrameReader()
  readonly #memory: FrameMemory
  readonly #streams: Record<Stream, MarkedStream> = {
    stdout: new MarkedStream('stdout'),
    stderr: new MarkedStream('stderr'),
  }
  #between = newBetween()
  #exchange: Exchange | undefined
  /** Frames that it has sent so far. */
  #taken = 0
  /** The text that precedes the frames that are understood, after a front has taken over the kernel. */
  #skipTo: string | undefined
  #ending: ProcessEnding | undefined
  /** Resolves when the process has ended. */
  readonly ended: Promise<ProcessEnding>
  readonly ready: Promise<void>
  #isReady = Promise.withResolvers<void>()

  constructor(processes: SandboxProcesses, memory: FrameMemory, sandboxId: string, processId: number) {
    this.#processes = processes
    this.#memory = memory
    this.#sandboxId = sandboxId
    this.processId = processId
    this.ready = this.#isReady.promise
    this.ended = this.#read()
  }

  get hasEnded(): boolean {
    return this.#ending !== undefined
  }

  /** The last line of what it wrote to standard error between calls, for example why it could not start. */
  get lastMessage(): string {
    return this.#between.stderr.tail.toString().trimEnd().split('\n').at(-1)?.slice(0, 500) ?? ''
  }

  /** Synchronizes with a kernel that another front has started: waits for its call and drops the output of that. */
  async takeOver(): Promise<Outcome> {
    const nonce = newNonce()
    this.#skipTo = `synced ${nonce} 0\n`
    return this.exchange(nonce, 'synced', encodeFrame('sync', nonce), undefined)
  }

  /** Sends frames and waits for the answer and for the output before it. */
  async exchange(
    nonce: string,
    answerKind: string,
    frames: Buffer,
    events: AsyncQueue<CallEvent> | undefined,
  ): Promise<Outcome> {
    if (this.#ending) return { kind: 'process_ended', ending: this.#ending }
    const finished = Promise.withResolvers<Outcome>()
    const exchange = { nonce, answerKind, events, hasGap: new Set<Stream>(), displays: 0, displayBytes: 0, finished }
    this.#exchange = exchange
    for (const stream of Object.values(this.#streams)) stream.expect(nonce)
    if (events) this.#deliverBetween(events)
    // A kernel that ends while it reads has an ending, which says more than the failed write.
    this.#processes.write(this.#sandboxId, this.processId, 'channel', frames).catch((error: unknown) => {
      if (!this.#ending) finished.reject(error)
    })
    return finished.promise
  }

  async interrupt(nonce: string, bySignal: boolean): Promise<void> {
    await this.signal(2)
    if (!bySignal)
      await this.#processes.write(this.#sandboxId, this.processId, 'channel', encodeFrame('interrupt', nonce))
  }

  async signal(signal: number, target: 'group' | 'one' = 'group'): Promise<void> {
    if (!this.#ending) await this.#processes.signal(this.#sandboxId, this.processId, signal, target)
  }

  async #read(): Promise<ProcessEnding> {
    let ending: ProcessEnding = { kind: 'sandbox_ended' }
    try {
      for await (const event of this.#processes.attach(this.#sandboxId, this.processId, 0)) {
        if (event.kind === 'ended') ending = event.ending
        else await this.#take(event)
      }
    } catch {
      // The connection to the runner, or the sandbox, is lost.
      await this.signal(9).catch(() => undefined)
    }
    this.#ending = ending
    this.#memory.set(this, 0, false, () => {})
    this.#isReady.resolve()
    await this.#releaseHeld()
    this.#exchange?.finished.resolve({ kind: 'process_ended', ending })
    return ending
  }

  async #take(event: Exclude<ProcessEvent, { kind: 'ended' }>): Promise<void> {
    if (event.kind === 'gap') return this.#takeGap(event)
    if (event.stream === 'channel') return this.#takeChannel(event.bytes)
    const stream = this.#streams[event.stream]
    const isOfCall = stream.isExpecting
    const { before, isReached, after } = stream.add(event.bytes)
    await this.#show({ kind: 'output', stream: event.stream, bytes: before }, isOfCall)
    // What follows the mark was printed between calls.
    await this.#show({ kind: 'output', stream: event.stream, bytes: after }, false)
    if (isReached) this.#finishIfComplete()
  }

  async #takeGap({ stream, bytes }: { stream: Stream | 'channel'; bytes: number }): Promise<void> {
    if (stream === 'channel') {
      if (this.#skipTo === undefined) throw new Error('frames of a kernel were dropped')
      return
    }
    this.#exchange?.hasGap.add(stream)
    await this.#show({ kind: 'gap', stream, bytes }, this.#streams[stream].isExpecting)
  }

  async #takeChannel(bytes: Uint8Array): Promise<void> {
    if (this.#skipTo !== undefined) {
      if (!this.#frames.skipPast(this.#skipTo, bytes)) return
      this.#skipTo = undefined
      if (this.#exchange) await this.#handle({ kind: 'synced', nonce: this.#exchange.nonce, payload: Buffer.alloc(0) })
      return
    }
    let taken = 0
    for (const frame of this.#frames.add(bytes)) {
      taken += 1
      this.#taken += 1
      await this.#handle(frame)
      if (this.#taken % framesPerPause === 0) await delay(pauseMs)
    }
    this.#memory.set(this, this.#frames.heldBytes, taken > 0, () => {
      this.#frames.drop()
      void this.signal(9).catch(() => undefined)
    })
  }

  async #handle(frame: Frame): Promise<void> {
    if (frame.kind === 'ready') this.#isReady.resolve()
    const exchange = this.#exchange
    if (!exchange || frame.nonce !== exchange.nonce) return
    if (frame.kind === 'display') await this.#showDisplay(exchange, frame)
    const isAnswer = frame.kind === exchange.answerKind || frame.kind === 'restored'
    if (!isAnswer || exchange.frame) return
    exchange.frame = frame
    if (exchange.hasGap.size > 0) setTimeout(() => this.#finish(exchange), lateMarkMs).unref()
    this.#finishIfComplete()
  }

  async #showDisplay(exchange: Exchange, frame: Frame): Promise<void> {
    exchange.displays += 1
    exchange.displayBytes += frame.payload.length
    if (exchange.displays > displaysMax || exchange.displayBytes > displayBytesMax) return
    const display = parseDisplay(frame.payload)
    if (display) await exchange.events?.send({ kind: 'display', ...display })
  }

  #finishIfComplete(): void {
    const exchange = this.#exchange
    const isMarked = !Object.values(this.#streams).some(({ isExpecting }) => isExpecting)
    if (exchange?.frame && isMarked) this.#finish(exchange)
  }

  #finish(exchange: Exchange): void {
    if (this.#exchange !== exchange || !exchange.frame) return
    this.#exchange = undefined
    for (const stream of Object.values(this.#streams)) stream.giveUp()
    exchange.finished.resolve({ kind: 'answered', frame: exchange.frame })
  }

  async #show(event: Exclude<Shown, { kind: 'display' }>, isOfCall: boolean): Promise<void> {
    if (event.kind === 'output' && event.bytes.length === 0) return
    if (isOfCall) {
      await this.#exchange?.events?.send(event)
      return
    }
    if (event.kind === 'output') this.#between[event.stream].append(event.bytes)
    else this.#between[event.stream].skip(event.bytes)
  }

  async #releaseHeld(): Promise<void> {
    for (const stream of Object.values(this.#streams)) {
      const bytes = stream.giveUp()
      if (bytes.length > 0) await this.#exchange?.events?.send({ kind: 'output', stream: stream.stream, bytes })
    }
  }

  #deliverBetween(events: AsyncQueue<CallEvent>): void {
    for (const stream of ['stdout', 'stderr'] as const) {
      const { omittedBytes, tail } = this.#between[stream]
      if (omittedBytes > 0) events.push({ kind: 'gap', stream, bytes: omittedBytes })
      if (tail.length > 0) events.push({ kind: 'output', stream, bytes: Buffer.from(tail) })
    }
    this.#between = newBetween()
  }
}

const newBetween = (): Record<Stream, HeadAndTail> => ({
  stdout: new HeadAndTail(0, betweenBytes),
  stderr: new HeadAndTail(0, betweenBytes),
})
