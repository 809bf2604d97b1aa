import type { Client } from '@modelcontextprotocol/client'
import type { UpstreamProcess } from '../../core/upstreams/programs/program-process.ts'
import type { RpcMessage } from '../rpc-channel.ts'
import { ProcessMessages } from './messages.ts'

type Transport = Parameters<Client['connect']>[0]
type JSONRPCMessage = Parameters<Transport['send']>[0]

/** The transport of an MCP client to a process. */
export class ProcessTransport implements Transport {
  readonly #process: UpstreamProcess
  readonly #messages: ProcessMessages
  onclose: Transport['onclose']
  onerror: Transport['onerror']
  onmessage: Transport['onmessage']

  constructor(process: UpstreamProcess) {
    this.#process = process
    this.#messages = new ProcessMessages(process)
  }

  async start(): Promise<void> {
    const reading = this.#messages.read((message: RpcMessage) => this.onmessage?.(message as unknown as JSONRPCMessage))
    void reading
      .catch((error: unknown) => error as Error)
      .then((problem) => {
        this.onerror?.(problem)
        this.onclose?.()
      })
  }

  send(message: object): Promise<void> {
    return this.#messages.send(message)
  }

  close(): Promise<void> {
    return this.#process.kill()
  }
}
