/** A registry on loopback for tests, which can misbehave. */
import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export const digestOf = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`

export interface TestRegistry {
  /** Host and port, the first part of names. */
  host: string
  /** Requests so far, as method, path and range. */
  requests: string[]
  /** Adds an image of layers. @returns its digest. */
  image(tag: string, layers: readonly Layer[], config?: object): string
  /** Answers a request for a blob in place of the registry; returns whether it did. */
  misbehave: (request: IncomingMessage, response: ServerResponse, blob: Buffer) => boolean
  /** Credentials that it requires; undefined: none. */
  login: string | undefined
  close(): Promise<void>
}

export interface Layer {
  /** As it is sent. */
  bytes: Buffer
  /** Before compression. */
  plain: Buffer
}

const type = 'application/vnd.oci.image.manifest.v1+json'
const token = 'token-of-the-test'

export async function openRegistry(): Promise<TestRegistry> {
  const blobs = new Map<string, Buffer>()
  const manifests = new Map<string, Buffer>()
  const server = createServer((request, response) => answer(request, response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`

  const made: TestRegistry = {
    host,
    requests: [],
    image(tag, layers, config = {}) {
      const add = (bytes: Buffer) => {
        blobs.set(digestOf(bytes), bytes)
        return { digest: digestOf(bytes), size: bytes.length }
      }
      const rootfs = { type: 'layers', diff_ids: layers.map(({ plain }) => digestOf(plain)) }
      const about = { os: 'linux', architecture: process.arch === 'x64' ? 'amd64' : process.arch, rootfs, config }
      const manifest = Buffer.from(
        JSON.stringify({
          schemaVersion: 2,
          mediaType: type,
          config: { mediaType: 'application/vnd.oci.image.config.v1+json', ...add(Buffer.from(JSON.stringify(about))) },
          layers: layers.map(({ bytes }) => ({
            mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip',
            ...add(bytes),
          })),
        }),
      )
      manifests.set(tag, manifest)
      manifests.set(digestOf(manifest), manifest)
      return digestOf(manifest)
    },
    misbehave: () => false,
    login: undefined,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }

  function answer(request: IncomingMessage, response: ServerResponse): void {
    const path = request.url ?? ''
    const { range = '', authorization } = request.headers
    made.requests.push([request.method, path, range].join(' ').trim())
    if (path.startsWith('/token')) {
      const isKnown = authorization === `Basic ${Buffer.from(made.login ?? '').toString('base64')}`
      response.writeHead(isKnown ? 200 : 401).end(JSON.stringify({ token }))
      return
    }
    if (made.login !== undefined && authorization !== `Bearer ${token}`) {
      response.writeHead(401, { 'www-authenticate': `Bearer realm="http://${host}/token",service="test"` }).end()
      return
    }
    const [, kind, version = ''] = /^\/v2\/own\/(manifests|blobs)\/(.+)$/.exec(path) ?? []
    const found = kind === 'manifests' ? manifests.get(version) : blobs.get(version)
    if (found === undefined) response.writeHead(404).end()
    else if (kind === 'manifests') response.writeHead(200, { 'content-type': type }).end(found)
    else if (!made.misbehave(request, response, found)) {
      const start = Number(/^bytes=(\d+)-$/.exec(range)?.[1] ?? 0)
      response.writeHead(start > 0 ? 206 : 200).end(found.subarray(start))
    }
  }

  return made
}
