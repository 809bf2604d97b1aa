import { connect } from 'node:net'

/**
 * Sends bytes unchanged and reads until the server closes, or for at most `limitMs`. For requests that no client
 * library would send.
 */
export async function sendRaw(port: number, request: string | Uint8Array, limitMs = 5_000): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  const timer = setTimeout(() => socket.destroy(), limitMs)
  const pieces: Buffer[] = []
  try {
    socket.write(request)
    for await (const piece of socket) pieces.push(piece as Buffer)
  } catch {
    // Reset by the server: the response until then is returned.
  } finally {
    clearTimeout(timer)
  }
  return Buffer.concat(pieces).toString('utf8')
}

/** A request with exactly these headers; the server closes the connection after its response. */
export function rawRequest(method: string, path: string, headers: Record<string, string>, body = ''): string {
  const all = { 'content-length': `${Buffer.byteLength(body)}`, connection: 'close', ...headers }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n${body}`
}

export const statusOf = (response: string): number => Number(/^HTTP\/1\.1 (\d{3})/.exec(response)?.[1] ?? 0)
