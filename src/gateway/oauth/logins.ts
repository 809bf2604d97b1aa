import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Agent } from 'undici'
import { Refusal } from '../../base/errors.ts'
import type { LoginMethod, PendingLogin, UpstreamOAuth } from '../../core/upstreams/logins.ts'
import type { AuthorizationServer, OAuthClient, OAuthGrant } from '../../core/upstreams/stored-credentials.ts'
import type { UpstreamTarget } from '../../core/upstreams/upstreams.ts'
import { boundedFetch } from '../bounded-fetch.ts'
import { clientFor, type Discovered, discover, oauthLibrary } from './discover.ts'
import { grantOf, readDeviceCode } from './grants.ts'
import { explain } from './problems.ts'

/** Maximum total size of the responses in one step of a login. */
const receivedMaxBytes = 1024 * 1024
/** Time for one step: a discovery takes several requests. */
const stepMs = 30_000
/** Time that a user has to log in. */
const loginMs = 15 * 60_000
/** Redirect address of clients that only log in by device. */
const anyRedirectUri = 'http://127.0.0.1/callback'

/**
 * Creates a client for the authorization servers of upstreams.
 * @param agent only reaches permitted addresses.
 * @param publicUrl address of this server, where authorization servers can read `clientDocumentPath`; may be empty.
 */
export function upstreamOAuth(agent: Agent, publicUrl: string): UpstreamOAuth {
  const clientIdUrl = publicUrl.startsWith('https://') ? publicUrl.replace(/\/+$/, '') + clientDocumentPath : undefined
  const fetchFn = () => boundedFetch(agent, AbortSignal.timeout(stepMs), receivedMaxBytes)
  return {
    begin: (target, method) => explained(target, () => begin(fetchFn(), target, method, clientIdUrl)),
    complete: (target, pending, redirectedTo) =>
      explained(target, () =>
        pending.kind === 'device' ? poll(fetchFn(), pending) : exchange(fetchFn(), target, pending, redirectedTo),
      ),
  }
}

/** Path of the document that describes this client: https://datatracker.ietf.org/doc/draft-ietf-oauth-client-id-metadata-document/ */
export const clientDocumentPath = '/oauth/client.json'

async function begin(
  fetchFn: typeof globalThis.fetch,
  target: UpstreamTarget,
  method: LoginMethod,
  clientIdUrl: string | undefined,
): ReturnType<UpstreamOAuth['begin']> {
  const found = await discover(fetchFn, target)
  const redirectUri = method.kind === 'browser' ? method.redirectUri : anyRedirectUri
  const client = await clientFor(fetchFn, found, target, { redirectUri, clientIdUrl })
  const { resource, scope } = found
  const rest = { ...{ upstreamUrl: target.url, server: serverOf(found), client, resource, scope: scope ?? null } }
  if (method.kind === 'device') return beginDevice(fetchFn, rest)
  const state = randomBytes(32).toString('base64url')
  const { startAuthorization } = await oauthLibrary()
  const { authorizationUrl, codeVerifier } = await startAuthorization(rest.server.issuer, {
    ...{ metadata: found.metadata, clientInformation: client, redirectUrl: redirectUri, state },
    ...{ resource: new URL(resource), ...(scope !== undefined && { scope }) },
  })
  if (!/^https?:$/.test(authorizationUrl.protocol)) throw new Error('its authorization endpoint is no web address')
  const expiresAtMs = Date.now() + loginMs
  return {
    pending: { ...rest, kind: 'browser', state, codeVerifier, redirectUri, expiresAtMs },
    instructions: { url: authorizationUrl.href, userCode: null, expiresAtMs, pollIntervalMs: null },
  }
}

/** https://www.rfc-editor.org/rfc/rfc8628#section-3.1 */
async function beginDevice(
  fetchFn: typeof globalThis.fetch,
  rest: Pick<PendingLogin, 'upstreamUrl' | 'server' | 'client' | 'resource' | 'scope'>,
): ReturnType<UpstreamOAuth['begin']> {
  const { server, client, resource, scope } = rest
  const endpoint = server.device_authorization_endpoint
  if (endpoint === undefined) throw new Error('its authorization server does not support logins by device')
  const answer = await postForm(fetchFn, endpoint, server, client, { resource, ...(scope !== null && { scope }) })
  if (typeof answer.error === 'string') throw refusedBy(answer)
  const { deviceCode, userCode, url, expiresAtMs, pollIntervalMs } = readDeviceCode(answer)
  const isComplete = url === answer.verification_uri_complete
  return {
    pending: { ...rest, kind: 'device', deviceCode, expiresAtMs },
    instructions: { url, userCode: isComplete ? null : userCode, expiresAtMs, pollIntervalMs },
  }
}

async function exchange(
  fetchFn: typeof globalThis.fetch,
  { name }: UpstreamTarget,
  pending: Extract<PendingLogin, { kind: 'browser' }>,
  redirectedTo: string | undefined,
): Promise<OAuthGrant> {
  const { server, client, codeVerifier, redirectUri, resource } = pending
  const parameters = readRedirect(name, redirectedTo, pending)
  const { exchangeAuthorization } = await oauthLibrary()
  const iss = parameters.get('iss')
  const tokens = await exchangeAuthorization(server.issuer, {
    ...{ metadata: server, clientInformation: client, authorizationCode: parameters.get('code') ?? '' },
    ...{ codeVerifier, redirectUri, resource: new URL(resource), fetchFn, ...(iss !== null && { iss }) },
  })
  return grantOf(tokens, pending)
}

/** BOUNDARY: reads the address that a browser was redirected to. @throws Refusal `invalid_argument`; Error of the server. */
function readRedirect(
  upstream: string,
  redirectedTo: string | undefined,
  { redirectUri, state }: Extract<PendingLogin, { kind: 'browser' }>,
): URLSearchParams {
  const problem = (text: string) => new Refusal('invalid_argument', { field: 'redirected_to', problem: text })
  const url = URL.parse(redirectedTo ?? '')
  const expected = new URL(redirectUri)
  if (url === null || url.origin !== expected.origin || url.pathname !== expected.pathname) {
    throw problem(`must be the address that the browser was redirected to, which begins with ${redirectUri}`)
  }
  const { searchParams: parameters } = url
  if (!isSame(parameters.get('state') ?? '', state)) {
    throw problem(`belongs to another login; start a new one to ${upstream}`)
  }
  const error = parameters.get('error')
  if (error !== null) throw refusedBy({ error, error_description: parameters.get('error_description') })
  if (!parameters.get('code')) throw problem('has no code')
  return parameters
}

async function poll(
  fetchFn: typeof globalThis.fetch,
  pending: Extract<PendingLogin, { kind: 'device' }>,
): Promise<OAuthGrant | null> {
  const { server, client, deviceCode, resource } = pending
  const answer = await postForm(fetchFn, server.token_endpoint, server, client, {
    ...{ grant_type: 'urn:ietf:params:oauth:grant-type:device_code', device_code: deviceCode, resource },
  })
  if (answer.error === 'authorization_pending' || answer.error === 'slow_down') return null
  if (typeof answer.error === 'string') throw refusedBy(answer)
  if (typeof answer.access_token !== 'string') throw new Error('its authorization server answered without a token')
  return grantOf(answer as unknown as Parameters<typeof grantOf>[0], pending)
}

/** Posts a form with the authentication of the client. @returns the JSON object of the answer, also of an error. */
async function postForm(
  fetchFn: typeof globalThis.fetch,
  url: string,
  server: AuthorizationServer,
  client: OAuthClient,
  fields: Readonly<Record<string, string>>,
): Promise<Record<string, unknown>> {
  const { assertSecureTokenEndpoint, selectClientAuthMethod } = await oauthLibrary()
  const body = new URLSearchParams({ ...fields, client_id: client.client_id })
  const headers: Record<string, string> = { accept: 'application/json' }
  const { client_secret: secret } = client
  const how = selectClientAuthMethod(client, server.token_endpoint_auth_methods_supported ?? [])
  if (secret !== undefined && how === 'client_secret_basic') {
    const pair = [client.client_id, secret].map(encodeURIComponent).join(':')
    headers.authorization = `Basic ${Buffer.from(pair).toString('base64')}`
  } else if (secret !== undefined) body.set('client_secret', secret)
  const response = await fetchFn(assertSecureTokenEndpoint(url), { method: 'POST', headers, body })
  const answer: unknown = await response.json().catch(() => undefined)
  if (typeof answer === 'object' && answer !== null) return answer as Record<string, unknown>
  throw new Error(`its authorization server answered with status ${response.status}`)
}

const refusedBy = ({ error, error_description: more }: Record<string, unknown>): Error =>
  new Error(`its authorization server refused: ${String(error)}${typeof more === 'string' ? ` (${more})` : ''}`)

/** Compares two texts in constant time. */
const isSame = (a: string, b: string): boolean => timingSafeEqual(digest(a), digest(b))
const digest = (text: string): Buffer => createHash('sha256').update(text).digest()

const serverOf = ({ metadata }: Discovered): AuthorizationServer => {
  const { device_authorization_endpoint: device } = metadata as { device_authorization_endpoint?: unknown }
  return {
    issuer: metadata.issuer,
    authorization_endpoint: metadata.authorization_endpoint,
    token_endpoint: metadata.token_endpoint,
    response_types_supported: metadata.response_types_supported,
    ...(typeof device === 'string' && { device_authorization_endpoint: device }),
    token_endpoint_auth_methods_supported: metadata.token_endpoint_auth_methods_supported,
    code_challenge_methods_supported: metadata.code_challenge_methods_supported,
    authorization_response_iss_parameter_supported: (metadata as { [field: string]: unknown })
      .authorization_response_iss_parameter_supported as boolean | undefined,
  }
}

/** Converts every error of a login to a refusal without secrets. */
async function explained<Result>(target: UpstreamTarget, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof Refusal && error.code === 'invalid_argument') throw error
    throw new Refusal('upstream_login_failed', { upstream: target.name, problem: explain(error, target) })
  }
}
