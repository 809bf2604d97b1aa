import type { PassThrough } from 'node:stream'
import type { UpstreamProcess } from '../../core/upstreams/programs/program-process.ts'
import type { UpstreamConnection } from '../connector.ts'
import { UpstreamProblem } from '../failures.ts'
import { type ChannelOptions, RpcChannel, type RpcMessage } from '../rpc-channel.ts'
import { type TraceContext, withTrace } from '../trace-context.ts'
import { ProcessMessages } from './messages.ts'

/** A process of an upstream as a connection. Closing it kills the process. */
export class StdioConnection implements UpstreamConnection<TraceContext> {
  readonly #process: UpstreamProcess
  readonly #messages: ProcessMessages
  readonly #channel: RpcChannel
  onEnd: () => void = () => {}

  constructor(process: UpstreamProcess, options: ChannelOptions) {
    this.#process = process
    this.#messages = new ProcessMessages(process)
    this.#channel = new RpcChannel(options)
    void this.#read()
  }

  get hasEnded(): boolean {
    return this.#channel.problem !== undefined
  }

  get isBusy(): boolean {
    return this.#channel.isBusy
  }

  request(message: RpcMessage, trace: TraceContext, signal: AbortSignal): Promise<PassThrough> {
    return this.#channel.request(withTrace(message, trace), (sent) => this.#messages.send(sent), signal)
  }

  notify(message: RpcMessage, trace: TraceContext): Promise<void> {
    return this.#channel.notify(withTrace(message, trace), (sent) => this.#messages.send(sent))
  }

  listen(): PassThrough {
    return this.#channel.listen()
  }

  close(): void {
    this.#end(new UpstreamProblem('its session has ended'))
  }

  async #read(): Promise<void> {
    try {
      this.#end(
        await this.#messages.read((message) => this.#channel.receive(message, (sent) => this.#messages.send(sent))),
      )
    } catch (error) {
      this.#end(error as Error)
    }
  }

  #end(problem: Error): void {
    if (this.hasEnded) return
    this.#channel.end(problem)
    this.#process.kill().catch(() => {})
    this.onEnd()
  }
}
