import { parseForeignJson, TooManyValues } from '../../base/json.ts'
import type { UpstreamProcess } from '../../core/upstreams/programs/program-process.ts'
import { UpstreamProblem } from '../failures.ts'
import type { RpcMessage } from '../rpc-channel.ts'
import { LineReader, LineTooLong } from './line-reader.ts'

/** Maximum size of one message of a program. */
const lineMaxBytes = 8 * 1024 * 1024
/** Messages that wait until the program reads them. */
const unreadMaxBytes = 16 * 1024 * 1024

/** JSON-RPC messages over the standard streams of a process: one on each line. */
export class ProcessMessages {
  readonly #process: UpstreamProcess
  #writing: Promise<void> = Promise.resolve()
  #unreadBytes = 0

  constructor(process: UpstreamProcess) {
    this.#process = process
  }

  /** Sends a message after all earlier ones. @throws UpstreamProblem if the program has ended or does not read. */
  async send(message: object): Promise<void> {
    const bytes = Buffer.from(`${JSON.stringify(message)}\n`)
    if (this.#unreadBytes + bytes.length > unreadMaxBytes)
      throw new UpstreamProblem('its program does not read its input')
    this.#unreadBytes += bytes.length
    const written = this.#writing.then(() => this.#process.write(bytes))
    this.#writing = written.catch(() => {})
    try {
      await written
    } catch (error) {
      throw this.#problem() ?? error
    } finally {
      this.#unreadBytes -= bytes.length
    }
  }

  /** Calls `onMessage` for each message. @returns why there are no more. */
  async read(onMessage: (message: RpcMessage) => void): Promise<UpstreamProblem> {
    const lines = new LineReader(lineMaxBytes)
    try {
      for await (const piece of this.#process.output) {
        for (const line of lines.add(piece)) {
          const message = parse(line)
          // Many programs print a greeting there.
          if (message === undefined) this.#process.countSkippedLine()
          else onMessage(message)
        }
      }
    } catch (error) {
      if (error instanceof TooManyValues)
        return new UpstreamProblem(`its program wrote a message that cannot be read: ${error.message}`)
      if (!(error instanceof LineTooLong)) throw error
      return new UpstreamProblem(`its program wrote a line of more than ${error.maxBytes} bytes`)
    }
    return this.#problem() ?? new UpstreamProblem('its program closed its output')
  }

  #problem(): UpstreamProblem | undefined {
    const { ending } = this.#process
    return ending === undefined ? undefined : new UpstreamProblem(`its program ${ending}`)
  }
}

/** BOUNDARY: parses a line. @returns `undefined` if it is no JSON-RPC message. @throws TooManyValues. */
function parse(line: string): RpcMessage | undefined {
  if (!line.trimStart().startsWith('{')) return undefined
  try {
    const message = parseForeignJson(line) as RpcMessage
    const isResponse = message.id !== undefined && ('result' in message || 'error' in message)
    return typeof message.method === 'string' || isResponse ? message : undefined
  } catch (error) {
    if (error instanceof TooManyValues) throw error
    return undefined
  }
}
