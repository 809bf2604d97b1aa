import type { IncomingMessage, ServerResponse } from 'node:http'
import type { RequestLine, Target } from './decision.ts'
import type { EgressJail } from './jail.ts'
import type { PackageCache } from './packages/package-cache.ts'
import { pump } from './pump.ts'

/**
 * Answers a request that the policy allows from the package cache, under the limits of the jail.
 * @param headers names and values in turn.
 * @throws NetworkRefused; Error when the cache cannot be used.
 */
export async function servePackages(
  jail: EgressJail,
  packages: Promise<PackageCache>,
  request: IncomingMessage,
  response: ServerResponse,
  { target, line, headers }: { target: Target; line: RequestLine; headers: readonly string[] },
): Promise<void> {
  // Nothing of it is replaced: the cache gets no secret, and a placeholder is refused.
  const { path } = jail.fill({ target, isTls: false, path: line.path, headers })
  const use = jail.useOf(target)
  const countSent = (bytes: number) => jail.count(use, bytes, true)
  countSent([line.method, path, ...headers].reduce((sum, text) => sum + text.length, 0))
  request.on('data', (piece: Buffer) => {
    try {
      countSent(piece.length)
    } catch {
      request.destroy()
    }
  })
  const gone = new AbortController()
  const served = jail.serves(request.socket, target)
  response.once('close', () => {
    gone.abort()
    served()
  })
  const accept = request.headers.accept ?? ''
  const {
    status,
    headers: answered,
    body,
    count,
  } = await (await packages).answer(line.method, path, accept, jail.orgId, gone.signal)
  body.on('error', () => response.destroy())
  if (response.destroyed) return void body.destroy()
  response.writeHead(status, answered)
  if (line.method === 'HEAD') {
    body.destroy()
    return void response.end()
  }
  response.once('close', () => body.destroy())
  pump(body, response, (bytes) => {
    count(bytes)
    return jail.count(use, bytes, false)
  })
}
