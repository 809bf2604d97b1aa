import type { IncomingMessage } from 'node:http'
import type { Transform } from 'node:stream'
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib'
import { Mask, masked, type Replacement } from './masking.ts'

/** Asked of a server that receives a secret: its answer is read, and read as a whole. */
const notAsked = new Set(['accept-encoding', 'range', 'if-range', 'sec-websocket-extensions', 'te'])
/** They describe the bytes before secrets were replaced. */
const ofBytes = new Set([
  'content-length',
  'content-encoding',
  'content-md5',
  'digest',
  'content-digest',
  'repr-digest',
])

/** The headers of a request whose answer can be read. */
export function askReadable(headers: readonly string[]): string[] {
  return [...without(headers, notAsked), 'Accept-Encoding', 'identity']
}

/** The head of an answer without secrets. */
export interface MaskedHead {
  statusMessage: string
  headers: string[]
}

/** @param hasBody whether a body follows whose bytes are changed. */
export function maskedHead(
  statusMessage: string,
  headers: readonly string[],
  echoes: readonly Replacement[],
  hasBody: boolean,
): MaskedHead {
  const kept = hasBody ? without(headers, ofBytes) : headers
  return { statusMessage: masked(statusMessage, echoes), headers: kept.map((text) => masked(text, echoes)) }
}

/**
 * Returns what the body of an answer passes through.
 * @returns undefined for an encoding that cannot be read.
 */
export function maskOf({ headers }: IncomingMessage, echoes: readonly Replacement[]): Transform[] | undefined {
  const decoder = decoderOf((headers['content-encoding'] ?? 'identity').trim().toLowerCase())
  if (decoder === undefined) return undefined
  return [...(decoder === 'none' ? [] : [decoder]), new Mask(echoes)]
}

function decoderOf(encoding: string): Transform | 'none' | undefined {
  switch (encoding) {
    case '':
    case 'identity':
      return 'none'
    case 'gzip':
    case 'x-gzip':
      return createGunzip()
    case 'deflate':
      return createInflate()
    case 'br':
      return createBrotliDecompress()
    default:
      return undefined
  }
}

function without(headers: readonly string[], names: ReadonlySet<string>): string[] {
  return headers.filter((_, i) => !names.has(headers[i - (i % 2)]!.toLowerCase()))
}
