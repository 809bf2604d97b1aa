import { AsyncQueue } from '../../base/async-queue.ts'
import { Credit } from '../../base/credit.ts'
import { Refusal } from '../../base/errors.ts'
import { fileWindowBytes, type ToRunner } from '../protocol/messages.ts'
import { kept, WireError } from '../protocol/wire.ts'

/** What a front sends about a file that is being transferred. */
export type FlowMessage = Extract<ToRunner, { type: 'files_bytes' | 'files_finish' | 'files_more' | 'files_stop' }>

/** A read or write in progress, which receives the messages about it. */
export interface FileFlow {
  take(message: FlowMessage, payload: Buffer): void
  stop(): void
}

/** The active transfers of a connection, by the number of their request. */
export type FileFlows = Map<number, FileFlow>

const givenUp = new Refusal('unavailable', { reason: 'the file was given up' })

/** A file that is being read, at the speed of its reader. */
export class Reading implements FileFlow {
  stopped = false
  readonly credit = new Credit(fileWindowBytes)

  take(message: FlowMessage): void {
    if (message.type !== 'files_more') throw new WireError('bytes for a file that is being read')
    this.credit.add(message.bytes)
  }

  stop(): void {
    this.stopped = true
    this.credit.close()
  }
}

/** A file that is being written, as it arrives. */
export class Writing implements FileFlow {
  readonly #grant: (bytes: number) => void
  readonly #arrived = new AsyncQueue<Buffer>({ capacity: fileWindowBytes, sizeOf: (piece) => piece.length })
  #grantedBytes = 0
  #end: 'finished' | Refusal | undefined

  constructor(grant: (bytes: number) => void) {
    this.#grant = grant
  }

  take(message: FlowMessage, payload: Buffer): void {
    if (message.type === 'files_bytes') this.#push(payload)
    else if (message.type !== 'files_finish') throw new WireError('room for a file that is being written')
    else {
      this.#end ??= 'finished'
      this.#arrived.close()
    }
  }

  stop(): void {
    if (this.#end === undefined) this.refuse(givenUp)
  }

  /** Ends the write without effect. */
  refuse(refusal: Refusal): void {
    this.#end = refusal
    this.#arrived.discard()
  }

  #push(payload: Buffer): void {
    if (this.#end instanceof Refusal) return // On their way when it was stopped.
    this.#grantedBytes -= payload.length
    if (this.#grantedBytes < 0 || this.#end) throw new WireError('more of a file than there was room for')
    this.#arrived.push(kept(payload))
  }

  /** In order, to the end. @throws Refusal when the front gives the file up: then nothing is written. */
  async *bytes(): AsyncGenerator<Uint8Array, void, undefined> {
    this.#give(fileWindowBytes)
    for await (const piece of this.#arrived) {
      yield piece
      this.#give(piece.length)
    }
    if (this.#end instanceof Refusal) throw this.#end
  }

  #give(bytes: number): void {
    this.#grantedBytes += bytes
    this.#grant(bytes)
  }
}
