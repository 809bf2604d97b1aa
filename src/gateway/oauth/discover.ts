import type { OAuthClient } from '../../core/upstreams/stored-credentials.ts'
import type { UpstreamTarget } from '../../core/upstreams/upstreams.ts'
import { UpstreamProblem } from '../failures.ts'

/** Loaded on first use: the package is large, and runs do not need it. */
const load = () => import('@modelcontextprotocol/client')
export type OAuthLibrary = Awaited<ReturnType<typeof load>>
export const oauthLibrary = load

type Metadata = NonNullable<Awaited<ReturnType<OAuthLibrary['discoverOAuthServerInfo']>>['authorizationServerMetadata']>

/** What an upstream and its authorization server say about logins. */
export interface Discovered {
  metadata: Metadata
  /** The address that tokens are requested for. */
  resource: string
  /** Scopes to request; `undefined` if neither the settings nor the upstream name any. */
  scope: string | undefined
}

const deviceGrant = 'urn:ietf:params:oauth:grant-type:device_code'

/**
 * Finds the authorization server of an upstream: https://www.rfc-editor.org/rfc/rfc9728 and
 * https://www.rfc-editor.org/rfc/rfc8414
 * @throws UpstreamProblem, and errors of the library and of the connection.
 */
export async function discover(
  fetchFn: typeof globalThis.fetch,
  { url, secrets }: Pick<UpstreamTarget, 'url' | 'secrets'>,
): Promise<Discovered> {
  const library = await oauthLibrary()
  const challenge = await challengeOf(library, fetchFn, url)
  const { resourceMetadataUrl } = challenge
  const { authorizationServerMetadata: metadata, resourceMetadata } = await library.discoverOAuthServerInfo(url, {
    ...{ fetchFn, ...(resourceMetadataUrl && { resourceMetadataUrl }) },
  })
  if (metadata === undefined) throw new UpstreamProblem('its authorization server publishes no metadata')
  const requested = library.resourceUrlFromServerUrl(url)
  const resource = resourceMetadata?.resource ?? requested.href
  // BOUNDARY: a token for another resource could be used by the upstream to impersonate the user there.
  if (!library.checkResourceAllowed({ requestedResource: requested, configuredResource: resource })) {
    throw new UpstreamProblem(`it says that it is the resource ${resource.slice(0, 200)}, which is another address`)
  }
  // https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization#authorization-code-protection
  if (!metadata.code_challenge_methods_supported?.includes('S256')) {
    throw new UpstreamProblem('its authorization server does not support PKCE')
  }
  const scope = secrets.oauth?.scope ?? challenge.scope ?? resourceMetadata?.scopes_supported?.join(' ')
  return { metadata, resource, scope: withOfflineAccess(scope, metadata.scopes_supported) }
}

/** Some authorization servers issue refresh tokens only for this scope. */
function withOfflineAccess(scope: string | undefined, supported: readonly string[] | undefined): string | undefined {
  const scopes = scope?.split(' ') ?? []
  if (!supported?.includes('offline_access') || scopes.includes('offline_access')) return scope
  return [...scopes, 'offline_access'].join(' ')
}

/** Returns what an upstream demands of a request without a token. One that cannot be reached fails in the next step. */
async function challengeOf(
  library: OAuthLibrary,
  fetchFn: typeof globalThis.fetch,
  url: string,
): Promise<{ resourceMetadataUrl?: URL; scope?: string }> {
  const response = await fetchFn(url, {
    ...{ method: 'POST', body: JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'ping' }) },
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
  })
  await response.body?.cancel()
  const { resourceMetadataUrl, scope } = library.extractWWWAuthenticateParams(response)
  return { ...(resourceMetadataUrl && { resourceMetadataUrl }), ...(scope !== undefined && { scope }) }
}

/** What an authorization server learns about this client; `redirectUris` are on the machine of the user. */
export const clientMetadata = (redirectUris: readonly string[], withDevices: boolean) => ({
  client_name: 'Glovebox',
  redirect_uris: [...redirectUris],
  grant_types: ['authorization_code', 'refresh_token', ...(withDevices ? [deviceGrant] : [])],
  response_types: ['code'],
  token_endpoint_auth_method: 'none',
  application_type: 'native',
})

/**
 * Returns the client to log in as: the one of the settings; the document at `clientIdUrl`, where the authorization server
 * reads such documents; or a client that is registered now.
 * @throws UpstreamProblem if the authorization server supports neither.
 */
export async function clientFor(
  fetchFn: typeof globalThis.fetch,
  { metadata, scope }: Discovered,
  { secrets }: Pick<UpstreamTarget, 'secrets'>,
  { redirectUri, clientIdUrl }: { redirectUri: string; clientIdUrl: string | undefined },
): Promise<OAuthClient> {
  const { clientId, clientSecret } = secrets.oauth ?? {}
  if (clientId) return { client_id: clientId, ...(clientSecret && { client_secret: clientSecret }) }
  const { client_id_metadata_document_supported: readsDocuments } = metadata as { [field: string]: unknown }
  if (readsDocuments === true && clientIdUrl !== undefined) {
    return { client_id: clientIdUrl, token_endpoint_auth_method: 'none' }
  }
  if (metadata.registration_endpoint === undefined) {
    throw new UpstreamProblem('its authorization server registers no clients; register one there and set its client_id')
  }
  const library = await oauthLibrary()
  const withDevices = metadata.grant_types_supported?.includes(deviceGrant) === true
  const registered = await library.registerClient(metadata.issuer, {
    ...{ metadata, fetchFn, clientMetadata: clientMetadata([redirectUri], withDevices) },
    ...(scope !== undefined && { scope }),
  })
  const { client_id, client_secret, token_endpoint_auth_method } = registered
  return { client_id, client_secret, token_endpoint_auth_method }
}
