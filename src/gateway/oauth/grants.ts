import type { OAuthGrant } from '../../core/upstreams/stored-credentials.ts'
import { UpstreamProblem } from '../failures.ts'

/** A token is renewed this long before it expires, or when three quarters of its lifetime have passed. */
const renewAheadMs = 60_000
/** For authorization servers that do not say when a device code expires. */
const deviceCodeMs = 600_000
const pollDefaultSeconds = 5

interface Tokens {
  access_token: string
  refresh_token?: string | undefined
  expires_in?: number | undefined
  scope?: string | undefined
  token_type?: string | undefined
}

/** Returns a grant with new tokens. @throws UpstreamProblem if they are not bearer tokens. */
export function grantOf(
  { access_token: accessToken, refresh_token: refreshToken, expires_in: seconds, scope, token_type: type }: Tokens,
  rest: Pick<OAuthGrant, 'server' | 'client' | 'resource' | 'scope'>,
  nowMs = Date.now(),
): OAuthGrant {
  if (type !== undefined && type.toLowerCase() !== 'bearer') {
    throw new UpstreamProblem(`its authorization server issued a token of the type ${type.slice(0, 32)}, not bearer`)
  }
  // BOUNDARY: the token becomes the value of a header.
  if (!/^[\x21-\x7e]{1,16384}$/.test(accessToken)) throw new UpstreamProblem('its access token is malformed')
  const lifetimeMs = seconds === undefined ? null : seconds * 1_000
  return {
    ...{ kind: 'oauth', accessToken, refreshToken: refreshToken ?? null },
    expiresAtMs: lifetimeMs === null ? null : nowMs + lifetimeMs,
    renewAtMs: lifetimeMs === null ? null : nowMs + lifetimeMs - Math.min(renewAheadMs, lifetimeMs / 4),
    ...{ scope: scope ?? rest.scope, server: rest.server, client: rest.client, resource: rest.resource },
    problem: null,
  }
}

/** The answer of a device authorization endpoint: https://www.rfc-editor.org/rfc/rfc8628#section-3.2 */
export interface DeviceCode {
  deviceCode: string
  userCode: string
  url: string
  expiresAtMs: number
  pollIntervalMs: number
}

/** BOUNDARY: reads the answer of a device authorization endpoint. @throws UpstreamProblem if it is malformed. */
export function readDeviceCode(answer: Record<string, unknown>): DeviceCode {
  const text = (field: string) => (typeof answer[field] === 'string' ? (answer[field] as string) : undefined)
  const number = (field: string, fallback: number) =>
    typeof answer[field] === 'number' && answer[field] > 0 ? answer[field] : fallback
  const [deviceCode, userCode] = [text('device_code'), text('user_code')]
  const url = text('verification_uri_complete') ?? text('verification_uri')
  if (deviceCode === undefined || userCode === undefined || url === undefined || !/^https?:\/\//.test(url)) {
    throw new UpstreamProblem('its authorization server answered without a device code')
  }
  return {
    ...{ deviceCode, userCode, url },
    expiresAtMs: Date.now() + number('expires_in', deviceCodeMs / 1_000) * 1_000,
    pollIntervalMs: number('interval', pollDefaultSeconds) * 1_000,
  }
}
