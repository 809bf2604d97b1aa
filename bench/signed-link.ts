import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { type Agent, request } from 'node:http'
import { Readable } from 'node:stream'
import type { GloveboxServer } from './glovebox-server.ts'

const pieceBytes = 1024 * 1024

/** Bytes that differ from chunk to chunk, and are the same every time. */
export function* pattern(bytes: number): Generator<Buffer, void, undefined> {
  for (let at = 0; at < bytes; at += pieceBytes) {
    // A buffer for each: a submitted one may still be in transit.
    yield Buffer.alloc(Math.min(pieceBytes, bytes - at), ((at / pieceBytes) % 251) + 1)
  }
}

/** Requests a link. @throws Error with the response of the server. */
export async function linkTo(server: GloveboxServer, what: 'upload' | 'download', body: object): Promise<string> {
  const response = await fetch(`${server.url}/v1/files/${what}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ source: 'thread', ...body }),
  })
  const { url, message } = (await response.json()) as { url?: string; message?: string }
  if (url === undefined) throw new Error(`no link: ${message}`)
  return url
}

/** Uploads the pattern. @returns the duration in ms. */
export async function upload(url: string, bytes: number): Promise<number> {
  const startedMs = performance.now()
  const sent = request(url, { method: 'PUT', headers: { 'content-length': bytes } })
  const answered = once(sent, 'response')
  Readable.from(pattern(bytes)).pipe(sent)
  const [response] = (await answered) as [import('node:http').IncomingMessage]
  response.resume()
  await once(response, 'end')
  if (response.statusCode !== 200) throw new Error(`the upload was answered ${response.statusCode}`)
  return performance.now() - startedMs
}

/** Downloads and counts bytes; hashes them only on request, since that takes longer than the transfer. */
export async function download(
  url: string,
  { agent, hashed = false }: { agent?: Agent; hashed?: boolean } = {},
): Promise<{ ms: number; bytes: number; sha256: string | undefined }> {
  const startedMs = performance.now()
  const asked = request(url, { ...(agent && { agent }) }).end()
  const [response] = (await once(asked, 'response')) as [import('node:http').IncomingMessage]
  if (response.statusCode !== 200) throw new Error(`the download was answered ${response.statusCode}`)
  const digest = hashed ? createHash('sha256') : undefined
  let bytes = 0
  for await (const piece of response as AsyncIterable<Buffer>) {
    bytes += piece.length
    digest?.update(piece)
  }
  return { ms: performance.now() - startedMs, bytes, sha256: digest?.digest('hex') }
}
