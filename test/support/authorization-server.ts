import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { install, type Packages } from './installed-packages.ts'
import { openStatelessUpstream, type TestUpstream } from './upstreams.ts'

/** A certified implementation of OAuth and OpenID Connect. */
export const oidcProvider: Packages = { from: 'npm', specs: ['oidc-provider@9.13.3'] }

interface Token {
  isValid: boolean
  aud?: string | string[]
  destroy(): Promise<void>
}

/** The part of the package that the tests use. */
interface Provider {
  callback(): (request: IncomingMessage, response: ServerResponse) => unknown
  AccessToken: { find(token: string): Promise<Token | undefined> }
  RefreshToken: { find(token: string): Promise<Token | undefined> }
}

/** A real authorization server on loopback, with a user who consents to everything. */
export interface AuthorizationServer {
  issuer: string
  provider: Provider
  /** Method, path and body of every request of clients, apart from those of the browser. */
  requests: { path: string; body: string }[]
  /** Follows a link as the browser of a user, and submits every form. @returns the address on which it ends. */
  browse(url: string): Promise<string>
  close(): void
}

/** @param documents answers requests for client documents. @param features differ from those of the package. */
export async function openAuthorizationServer(
  documents: (url: string) => Promise<Response>,
  features: object = {},
): Promise<AuthorizationServer> {
  const directory = await install(oidcProvider)
  const entry = pathToFileURL(join(directory, 'node_modules/oidc-provider/lib/index.js')).href
  const { Provider: Implementation } = (await import(entry)) as {
    Provider: new (issuer: string, configuration: object) => Provider
  }
  const requests: AuthorizationServer['requests'] = []
  let handle: ReturnType<Provider['callback']> = () => {}
  const server = createServer((request, response) => {
    const { url: path = '' } = request
    const isOfClient = /^\/(?:token|reg|device\/auth)/.test(path)
    const pieces: Buffer[] = []
    if (isOfClient) {
      request.on('data', (piece: Buffer) => pieces.push(piece))
      request.on('end', () => requests.push({ path, body: Buffer.concat(pieces).toString() }))
    }
    void handle(request, response)
  })
  server.listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const provider = new Implementation(issuer, {
    clients: [],
    cookies: { keys: ['test'] },
    fetch: documents,
    issueRefreshToken: async () => true,
    rotateRefreshToken: true,
    scopes: ['openid', 'offline_access', 'mcp'],
    ttl: { AccessToken: 3_600, Grant: 86_400, Session: 86_400, Interaction: 600, RefreshToken: 86_400, IdToken: 600 },
    features: {
      registration: { enabled: true },
      deviceFlow: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: async (_context: unknown, resource: string) => ({
          ...{ scope: 'mcp', audience: resource, accessTokenFormat: 'opaque' },
        }),
      },
      ...features,
    },
  })
  handle = provider.callback()
  const close = () => {
    server.close()
    server.closeAllConnections()
  }
  return { issuer, provider, requests, browse, close }
}

/** More pages than any login has. */
const pagesMax = 20

async function browse(start: string): Promise<string> {
  const cookies = new Map<string, string>()
  let next: { url: string; form?: URLSearchParams } = { url: start }
  for (let count = 0; count < pagesMax; count++) {
    const { url, form } = next
    const response = await fetch(url, {
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
      ...(form && { method: 'POST', body: form }),
    })
    for (const cookie of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? []
      cookies.set(name, value)
    }
    const location = response.headers.get('location')
    if (location !== null) {
      const to = new URL(location, url)
      if (to.pathname === '/callback') return to.href
      next = { url: to.href }
      continue
    }
    const page = await response.text()
    const [, action] = /<form[^>]*action="([^"]*)"/.exec(page) ?? []
    if (action === undefined) return page
    const inputs = [...page.matchAll(/<input[^>]*\bname="([^"]+)"(?:[^>]*\bvalue="([^"]*)")?/g)]
    const fields = inputs.map(([, name = '', value = '']): [string, string] => [name, value || 'user'])
    next = { url: new URL(action, url).href, form: new URLSearchParams(fields) }
  }
  throw new Error(`the login at ${start} does not end`)
}

/** An MCP server that only serves requests with a token for its address. */
export interface ProtectedUpstream extends TestUpstream {
  /** The tokens that it has rejected. */
  rejected: string[]
  /** The address that it says tokens are for. */
  resource: string
}

/** @param authorization returns the authorization server that it names. */
export async function openProtectedUpstream(authorization: () => AuthorizationServer): Promise<ProtectedUpstream> {
  const rejected: string[] = []
  const upstream = await openStatelessUpstream(async (request, response) => {
    const { issuer, provider } = authorization()
    if (request.url?.startsWith('/.well-known/oauth-protected-resource')) {
      const metadata = {
        ...{ resource: guarded.resource, authorization_servers: [issuer], scopes_supported: ['mcp'] },
      }
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(metadata))
      return true
    }
    const token = request.headers.authorization?.replace(/^Bearer /, '') ?? ''
    const known = token === '' ? undefined : await provider.AccessToken.find(token)
    if (known?.isValid && [known.aud].flat().includes(upstream.url)) return false
    rejected.push(token)
    const metadataUrl = `http://${request.headers.host}/.well-known/oauth-protected-resource/mcp`
    response.writeHead(401, { 'www-authenticate': `Bearer resource_metadata="${metadataUrl}"` }).end(`bad ${token}`)
    return true
  })
  const guarded: ProtectedUpstream = { ...upstream, rejected, resource: upstream.url }
  return guarded
}
