import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { StartRefused } from '../../base/errors.ts'

const page = '<!doctype html><meta charset="utf-8"><title>Glovebox</title><p>You can close this window.</p>\n'

/** Waits on loopback for the browser of a login: https://www.rfc-editor.org/rfc/rfc8252#section-7.3 */
export interface RedirectListener {
  redirectUri: string
  /** Resolves with the address of the first redirect that belongs to the login. */
  redirected(state: string): Promise<string>
  close(): void
}

/** @param port 0 for any free port. @throws StartRefused if the port is in use. */
export async function listenForRedirect(port: number): Promise<RedirectListener> {
  const { promise, resolve } = Promise.withResolvers<string>()
  let expected: string | undefined
  let base = ''
  const server = createServer(({ url = '/' }, response) => {
    const address = new URL(url, base)
    // Other programs and pages can send requests to this port; only the browser of this login knows its state.
    const isOurs = address.pathname === '/callback' && address.searchParams.get('state') === expected
    response.writeHead(isOurs ? 200 : 404, { 'content-type': 'text/html', connection: 'close' }).end(isOurs ? page : '')
    if (isOurs) resolve(address.href)
  })
  server.listen(port, '127.0.0.1')
  try {
    await once(server, 'listening')
  } catch (error) {
    throw new StartRefused(
      `Cannot listen on 127.0.0.1:${port}: ${(error as Error).message}.`,
      'Choose another --port, or log in with --device.',
    )
  }
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    redirectUri: `${base}/callback`,
    redirected: (state) => {
      expected = state
      return promise
    },
    close: () => {
      server.close()
      server.closeAllConnections()
    },
  }
}

/** Resolves with the first line of an input that is an address; never if it ends before. */
export function pastedAddress(input: Readable, signal: AbortSignal): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>()
  const lines = createInterface({ input, signal })
  lines.on('line', (line) => {
    const text = line.trim()
    if (!text.startsWith('http://')) return
    resolve(text)
    lines.close()
  })
  return promise
}
