import type { FromRunner } from './protocol/messages.ts'

/** The connection to a front, as the requests that it carries use it. */
export interface FrontLink {
  send(message: FromRunner, payload?: Uint8Array): void
  /** Sends a large message. Resolves when the connection has taken it, or is gone. */
  sendLarge(message: FromRunner, payload?: Uint8Array): Promise<void>
  /** Answers a request with what went wrong. */
  refuse(request: number, error: unknown): void
  /** Whether no more output should be sent now. */
  isFull(): boolean
}
