/** An index for pip, and for npm below /npm, on loopback, whose files and pages a test writes. */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type RequestListener, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** The content of a file, or what answers for it. */
export type WheelFiles = Record<string, Buffer | ((response: ServerResponse) => void)>

export interface WheelIndex {
  url: string
  requests: string[]
  headers: (string | undefined)[]
  close(): void
}

/** An index whose pages list the given files, with their checksums unless `listed` has others. */
export async function serveWheels(
  files: WheelFiles,
  listed: Record<string, string> = {},
  page?: (base: string) => [type: string, text: string],
): Promise<WheelIndex> {
  const requests: string[] = []
  const headers: (string | undefined)[] = []
  const answer: RequestListener = (request, response) => {
    requests.push(request.url ?? '')
    headers.push(request.headers.authorization)
    const name = request.url?.split('/').at(-1) ?? ''
    const file = files[name]
    if (file instanceof Buffer) return void response.end(file)
    if (typeof file === 'function') return file(response)
    if (!request.url?.startsWith('/simple/one')) return void response.writeHead(404).end()
    const links = Object.entries(files).map(([name, content]) => {
      const hex = listed[name] ?? (content instanceof Buffer ? sha256(content) : '0'.repeat(64))
      return `<a class="file" data-requires-python="&gt;=3.8" href="../../files/${name}#sha256=${hex}">${name}</a>`
    })
    const [type, text] = page?.(url) ?? ['text/html', `<html><body>${links.join('<br>')}</body></html>`]
    response.writeHead(200, { 'content-type': type }).end(text)
  }
  const server = createServer(answer).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const close = () => {
    server.close()
    server.closeAllConnections()
  }
  return { url, requests, headers, close }
}

export const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')
