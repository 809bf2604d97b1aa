import type { PassThrough } from 'node:stream'
import { begun, rpcError } from '../connected-answers.ts'
import { bodyOf, type UpstreamAnswer } from '../exchange.ts'
import { tryParse } from '../message.ts'
import type { RpcMessage } from '../rpc-channel.ts'
import { type Json, legacyVersion, metaKey, modernVersion, versionUnsupported } from './messages.ts'

/** Longest wait for the answer to `server/discover`: a program that does not know the method may ignore it. */
const discoverMaxMs = 10_000

/** Sends a request in a connection. @returns the stream with its response. */
export type Ask = (message: RpcMessage, signal: AbortSignal) => Promise<PassThrough>

/** A response that was read whole. */
export interface WholeAnswer {
  body: Buffer
  /** The last message. */
  message: { result?: Json; error?: { message?: unknown } }
}

const clientInfo = (version: string) => ({ name: 'glovebox', version })

/** Returns the first message of a client of the older versions. @param version of this server. */
export const initializeOf = (version: string): RpcMessage => ({
  ...{ jsonrpc: '2.0', id: 0, method: 'initialize' },
  params: { protocolVersion: legacyVersion, capabilities: {}, clientInfo: clientInfo(version) },
})

/**
 * Asks an upstream that has refused `initialize` whether it speaks 2026-07-28:
 * https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning
 * @returns how it describes itself; `undefined` if it does not speak this version.
 */
export async function discover(ask: Ask, version: string, timeoutMs: number): Promise<Json | undefined> {
  const _meta = {
    [metaKey('protocolVersion')]: modernVersion,
    [metaKey('clientInfo')]: clientInfo(version),
    [metaKey('clientCapabilities')]: {},
  }
  const withinMs = Math.min(timeoutMs, discoverMaxMs)
  try {
    const request = { jsonrpc: '2.0', id: 0, method: 'server/discover', params: { _meta } }
    const { result } = (await whole(await ask(request, AbortSignal.timeout(withinMs)), withinMs)).message
    const versions = result?.supportedVersions
    return Array.isArray(versions) && versions.includes(modernVersion) ? result : undefined
  } catch {
    return undefined
  }
}

/** Reads a response whole. @throws UpstreamTimeout, UpstreamProblem. */
export async function whole(stream: PassThrough, timeoutMs: number): Promise<WholeAnswer> {
  await begun(stream, timeoutMs)
  const body = await bodyOf({ status: 200, headers: {}, body: stream })
  const data = body
    .toString('utf8')
    .split('\n')
    .findLast((line) => line.startsWith('data: '))
  const message = tryParse(Buffer.from(data?.slice('data: '.length) ?? ''))
  return { body, message: typeof message === 'object' && message !== null ? message : {} }
}

/** Returns whether a message is a request of the versions up to 2025-11-25. */
export function isOlderRequest({ id, method, params }: RpcMessage): boolean {
  return id !== undefined && method !== undefined && params?._meta?.[metaKey('protocolVersion')] === undefined
}

/** Returns how an upstream over HTTP refuses a request of a version that it does not speak. */
export const olderRefused = (): UpstreamAnswer =>
  rpcError(400, versionUnsupported, 'This upstream only speaks 2026-07-28.', { supported: [modernVersion] })
