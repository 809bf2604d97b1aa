import type { PassThrough } from 'node:stream'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'
import type { RelayRequest } from './exchange.ts'
import type { RpcMessage } from './rpc-channel.ts'

/** A connection to an upstream that answers all requests in one stream. @template Auth what authenticates a message. */
export interface UpstreamConnection<Auth> {
  readonly hasEnded: boolean
  /** Whether a request or a listener waits for messages. */
  readonly isBusy: boolean
  /** Called once when the connection has ended. */
  onEnd: () => void
  request(message: RpcMessage, auth: Auth, signal: AbortSignal): Promise<PassThrough>
  notify(message: RpcMessage, auth: Auth): Promise<void>
  listen(): PassThrough
  close(): void
}

/** Of what there are too many: connections of one upstream, or upstreams of an organization or of all. */
export type FullScope = 'upstream' | 'organization' | 'instance'

/** How to connect to upstreams of one kind. */
export interface Connector<Auth> {
  /** Returns what authenticates the next message, as a part of the trace of a request, and what adds the credential to it if it is sent there. */
  authorize(
    target: UpstreamTarget,
    request?: RelayRequest,
  ): { auth: Auth; intoBody: ((message: unknown) => void) | undefined }
  /** @param isOwn the gateway opens it for a key whose client has no session, so the client cannot be asked anything. */
  connect(target: UpstreamTarget, auth: Auth, isOwn: boolean): Promise<UpstreamConnection<Auth>>
  /** Returns the status with which an upstream refused a message; `undefined` for another error. */
  statusOf(error: unknown): number | undefined
  /** Returns where another connection must be closed before one can be opened; `undefined` for another error. */
  fullScope(error: unknown): FullScope | undefined
  /** Whether all keys share a connection. */
  isShared(target: UpstreamTarget): boolean
  /** Whether a connection takes so long that the client must be kept waiting. */
  isSlow(target: UpstreamTarget): Promise<boolean>
  /** Time without messages after which a connection is closed. */
  idleMsOf(target: UpstreamTarget): number
  /** Words for an error: `with such servers`. */
  readonly what: string
}
