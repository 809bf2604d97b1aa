/** The lines of JSON with which a server streams a run, and how they are printed. */
import type { Writable } from 'node:stream'
import { ClientError } from './client-error.ts'
import { readLines } from './lines.ts'
import type { OutputStream, ProcessIo } from './process-io.ts'
import { TerminalText } from './terminal.ts'

/** The fields of an execution that commands print; the last line of a stream has all of them. */
export interface Execution {
  trace_id: string
  status: string
  success: boolean | null
  exit_code: number | null
  ending: { kind?: string } | null
  error: string | null
  duration_ms: number | null
  language: string
  thread_id: string | null
  created_at: string
  completed_at: string | null
  images_dropped?: number
}

export interface ImageLine {
  mime_type: string
  data_base64: string
}

type Stream = 'stdout' | 'stderr'

type Line =
  | { type: 'status'; trace_id: string }
  | { type: Stream; seq?: number; data_base64: string }
  | { type: 'gap'; seq?: number; stream: Stream; bytes: number }
  | ({ type: 'image'; seq?: number } & ImageLine)
  | { type: 'error'; message: string; hint?: string }
  | ({ type: 'result' } & Execution)

/** What to do with the parts of a stream. */
export interface RunListener {
  /** The run has started; it can be cancelled from now on. */
  started?(runId: string): void
  output(stream: Stream, bytes: Buffer): Promise<void>
  gap(stream: Stream, bytes: number): void
  image(image: ImageLine): Promise<void>
  /** Every line with a number has been handled up to this one. */
  reached?(seq: number): void
}

/**
 * Reads a stream to its end.
 * @returns the execution; `undefined` if the connection closed before the run ended.
 * @throws ClientError when the server reports an error instead of an ending.
 */
export async function readRun(
  body: AsyncIterable<Uint8Array>,
  listener: RunListener,
): Promise<(Execution & Record<string, unknown>) | undefined> {
  for await (const text of readLines(body)) {
    const line = JSON.parse(text) as Line
    switch (line.type) {
      case 'status':
        listener.started?.(line.trace_id)
        break
      case 'stdout':
      case 'stderr':
        await listener.output(line.type, Buffer.from(line.data_base64, 'base64'))
        break
      case 'gap':
        listener.gap(line.stream, line.bytes)
        break
      case 'image':
        await listener.image(line)
        break
      case 'error':
        throw new ClientError(`${line.message} ${line.hint ?? ''}`.trim())
      case 'result': {
        const { type: _, ...execution } = line
        return execution as Execution & Record<string, unknown>
      }
    }
    if ('seq' in line && line.seq !== undefined) listener.reached?.(line.seq)
  }
  return undefined
}

/** Prints the output of a run: byte for byte, but without control characters on a terminal. */
export class RunPrinter {
  readonly #outputs: Readonly<Record<Stream, OutputStream>>
  readonly #texts: Readonly<Record<Stream, TerminalText>> = { stdout: new TerminalText(), stderr: new TerminalText() }

  constructor({ stdout, stderr }: ProcessIo) {
    this.#outputs = { stdout, stderr }
  }

  async print(stream: Stream, bytes: Buffer): Promise<void> {
    const output = this.#outputs[stream]
    await writeTo(output, output.isTTY === true ? this.#texts[stream].add(bytes) : bytes)
  }

  /** Prints what was waiting for the rest of a character. */
  async end(): Promise<void> {
    for (const stream of ['stdout', 'stderr'] as const) await writeTo(this.#outputs[stream], this.#texts[stream].end())
  }
}

/** Waits for a slow reader, so that at most one line is held in memory. */
export async function writeTo(output: Writable, content: Uint8Array | string): Promise<void> {
  if (content.length === 0 || output.destroyed || output.write(content)) return
  await new Promise<void>((resolve) => {
    const settle = () => {
      output.off('drain', settle).off('close', settle).off('error', settle)
      resolve()
    }
    output.on('drain', settle).on('close', settle).on('error', settle)
  })
}
