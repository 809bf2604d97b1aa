import { PassThrough, Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { messageEvent } from './events.ts'
import { bodyOf, type UpstreamAnswer } from './exchange.ts'
import { UpstreamTimeout } from './failures.ts'

/** Resolves when the first message has arrived. @throws UpstreamTimeout. */
export async function begun(body: Readable, timeoutMs: number): Promise<void> {
  if (body.readableLength > 0 || body.readableEnded) return
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const timer = setTimeout(() => reject(new UpstreamTimeout()), timeoutMs)
  body.once('readable', resolve).once('error', reject).once('close', resolve)
  try {
    await promise
  } catch (error) {
    body.destroy()
    throw error
  } finally {
    clearTimeout(timer)
    body.off('readable', resolve).off('error', reject).off('close', resolve)
  }
}

/** The first bytes of a response that takes long. Clients ignore comments; people who look for the reason do not. */
const installing = ': the upstream is being installed, its response follows\n\n'

/** Returns a stream at once, in which the answer follows. Comments keep it open meanwhile. */
export function deferred(answering: Promise<UpstreamAnswer>, sessionId?: string): UpstreamAnswer {
  const body = new PassThrough()
  body.on('error', () => {})
  body.write(installing)
  const follow = async () => {
    const { body: following, headers } = await answering
    const isStream = headers['content-type'] === 'text/event-stream'
    if (isStream) await pipeline(following, body)
    else body.end(messageEvent((await bodyOf({ status: 200, headers, body: following })).toString('utf8')))
  }
  follow().catch((error: unknown) => body.destroy(error as Error))
  return {
    status: 200,
    headers: { 'content-type': 'text/event-stream', ...(sessionId !== undefined && { 'mcp-session-id': sessionId }) },
    body,
  }
}

export const rpcError = (status: number, code: number, message: string, data?: object): UpstreamAnswer => ({
  ...{ status, headers: { 'content-type': 'application/json' } },
  body: Readable.from([Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: null, error: { code, message, data } }))]),
})
