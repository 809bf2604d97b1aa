import type { Stream } from '../../base/run.ts'
import type { ProcessEvent } from '../../base/sandbox.ts'
import { StreamDecoder } from '../runs/stream-decoder.ts'

/** Adjacent output of one stream. */
export interface OutputPiece {
  stream: Stream
  text: string
}

interface Piece {
  stream: Stream
  bytes: Uint8Array
}

/** Output that was kept, in the order in which it arrived. */
export interface CommandOutput {
  pieces: OutputPiece[]
  stdout: string
  stderr: string
  /** Bytes between the beginning and the end that were not kept. */
  omittedBytes: number
}

/** Keeps the beginning and the end of the output of a command, over both streams. */
export class CommandOutputFold {
  readonly #limitBytes: number
  readonly #head: Piece[] = []
  readonly #tail: Piece[] = []
  #headBytes = 0
  #tailBytes = 0
  #omittedBytes = 0
  /** Bytes of all output, kept or not. */
  totalBytes = 0

  /** @param limitBytes half of it is for the beginning. */
  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes
  }

  add(event: Extract<ProcessEvent, { kind: 'output' | 'gap' }>): void {
    if (event.stream === 'channel') return
    if (event.kind === 'gap') {
      this.#omittedBytes += event.bytes
      this.totalBytes += event.bytes
      return
    }
    this.totalBytes += event.bytes.length
    this.#keep(event.stream, event.bytes)
  }

  end(): CommandOutput {
    const decoder = new StreamDecoder()
    const pieces: OutputPiece[] = []
    const push = (stream: Stream, text: string) => {
      if (text === '') return
      const last = pieces.at(-1)
      if (last?.stream === stream) last.text += text
      else pieces.push({ stream, text })
    }
    for (const { stream, bytes } of this.#head) push(stream, decoder.add(stream, bytes))
    if (this.#omittedBytes > 0) {
      for (const stream of ['stdout', 'stderr'] as const) push(stream, decoder.flush(stream))
      push('stdout', `\n… ${this.#omittedBytes} bytes omitted …\n`)
    }
    for (const { stream, bytes } of this.#tail) push(stream, decoder.add(stream, bytes))
    for (const stream of ['stdout', 'stderr'] as const) push(stream, decoder.flush(stream))
    const textOf = (wanted: Stream) =>
      pieces
        .filter(({ stream }) => stream === wanted)
        .map(({ text }) => text)
        .join('')
    return { pieces, stdout: textOf('stdout'), stderr: textOf('stderr'), omittedBytes: this.#omittedBytes }
  }

  #keep(stream: Stream, bytes: Uint8Array): void {
    const half = this.#limitBytes / 2
    const room = half - this.#headBytes
    const first = bytes.subarray(0, Math.max(room, 0))
    if (first.length > 0) {
      this.#head.push({ stream, bytes: first })
      this.#headBytes += first.length
    }
    const rest = bytes.subarray(first.length)
    if (rest.length === 0) return
    this.#tail.push({ stream, bytes: rest })
    this.#tailBytes += rest.length
    while (this.#tailBytes > half) this.#dropOldest(this.#tailBytes - half)
  }

  #dropOldest(excessBytes: number): void {
    const oldest = this.#tail[0]!
    const dropped = Math.min(oldest.bytes.length, excessBytes)
    this.#omittedBytes += dropped
    this.#tailBytes -= dropped
    if (dropped === oldest.bytes.length) this.#tail.shift()
    else this.#tail[0] = { stream: oldest.stream, bytes: oldest.bytes.subarray(dropped) }
  }
}
