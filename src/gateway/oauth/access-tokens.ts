import type { Agent } from 'undici'
import { Refusal } from '../../base/errors.ts'
import { loginRequired } from '../../core/upstreams/login-required.ts'
import type { CredentialRef, OAuthGrant, StoredCredentials } from '../../core/upstreams/stored-credentials.ts'
import type { UpstreamTarget } from '../../core/upstreams/upstreams.ts'
import { boundedFetch } from '../bounded-fetch.ts'
import { oauthLibrary } from './discover.ts'
import { grantOf } from './grants.ts'
import { explain } from './problems.ts'

const receivedMaxBytes = 256 * 1024
const renewalMs = 15_000

/** The access tokens of upstreams with logins. Renews them before they expire, and when an upstream rejects one. */
export class AccessTokens {
  readonly #credentials: StoredCredentials
  readonly #agent: Agent
  /** Renewals in progress, so that a refresh token is used once. */
  readonly #renewals = new Map<string, Promise<OAuthGrant>>()

  constructor(credentials: StoredCredentials, agent: Agent) {
    this.#credentials = credentials
    this.#agent = agent
  }

  /**
   * Returns the target with its access token as the credential; unchanged for upstreams without logins.
   * @throws Refusal `upstream_login_required`, `upstream_login_failed`.
   */
  async authorized(target: UpstreamTarget): Promise<UpstreamTarget> {
    if (!target.secrets.oauth) return target
    const stored = await this.#credentials.get(refOf(target))
    if (stored?.kind !== 'oauth') throw required(target, 'no login has been completed yet')
    return withToken(target, isDue(stored) ? await this.#renewed(target, stored.accessToken) : stored)
  }

  /**
   * Returns the target with another access token, after the upstream has rejected that of `target`.
   * @throws Refusal `upstream_login_required` if the login cannot be renewed, `upstream_login_failed`.
   */
  async renewed(target: UpstreamTarget): Promise<UpstreamTarget> {
    return withToken(target, await this.#renewed(target, target.secrets.credential?.values[0] ?? ''))
  }

  #renewed(target: UpstreamTarget, rejected: string): Promise<OAuthGrant> {
    const { upstreamId, keyId } = refOf(target)
    const name = `${upstreamId} ${keyId}`
    const known = this.#renewals.get(name)
    if (known) return known
    const renewal = this.#renew(target, rejected).finally(() => this.#renewals.delete(name))
    this.#renewals.set(name, renewal)
    return renewal
  }

  async #renew(target: UpstreamTarget, rejected: string): Promise<OAuthGrant> {
    const ref = refOf(target)
    const { sealed, credential: grant } = await this.#credentials.latest(ref)
    if (grant?.kind !== 'oauth' || sealed === null) throw required(target, 'no login has been completed yet')
    // Another process has renewed it.
    if (grant.accessToken !== rejected) return grant
    if (grant.problem !== null) throw required(target, grant.problem)
    if (grant.refreshToken === null) {
      const reason = isExpired(grant) ? 'the access token has expired' : 'it rejected the access token'
      throw required(target, `${reason}, and there is no refresh token`)
    }
    try {
      const renewed = await this.#credentials.renew(ref, sealed, await this.#refresh(grant, grant.refreshToken))
      if (renewed?.kind === 'oauth') return renewed
      throw required(target, 'its credential was removed')
    } catch (error) {
      return this.#unrenewed(target, { grant, sealed }, error)
    }
  }

  async #refresh(grant: OAuthGrant, refreshToken: string): Promise<OAuthGrant> {
    const { server, client, resource } = grant
    const fetchFn = boundedFetch(this.#agent, AbortSignal.timeout(renewalMs), receivedMaxBytes)
    const { refreshAuthorization } = await oauthLibrary()
    const tokens = await refreshAuthorization(server.issuer, {
      ...{ metadata: server, clientInformation: client, refreshToken, resource: new URL(resource), fetchFn },
    })
    return grantOf(tokens, grant)
  }

  /** Uses a token that is still valid if the authorization server is down, and records that a login has ended. */
  async #unrenewed(
    target: UpstreamTarget,
    { grant, sealed }: { grant: OAuthGrant; sealed: string },
    error: unknown,
  ): Promise<OAuthGrant> {
    if (error instanceof Refusal) throw error
    const problem = explain(error, target)
    const { OAuthError } = await oauthLibrary()
    if (!OAuthError.isInstance(error) || !ended.has(error.code)) {
      const wasRejected = !isDue(grant)
      if (!isExpired(grant) && !wasRejected) return grant
      throw new Refusal('upstream_login_failed', { upstream: target.name, problem })
    }
    const text = `it can no longer be renewed (${error.code}: ${problem})`
    const current = await this.#credentials.renew(refOf(target), sealed, { ...grant, problem: text })
    // Another process has used the refresh token first.
    if (current?.kind === 'oauth' && current.problem === null) return current
    throw required(target, text)
  }
}

/** Errors after which a refresh token is worthless: https://www.rfc-editor.org/rfc/rfc6749#section-5.2 */
const ended: ReadonlySet<string> = new Set(['invalid_grant', 'invalid_client', 'unauthorized_client'])

const refOf = ({ id, credentialOf }: UpstreamTarget): CredentialRef => ({ upstreamId: id, keyId: credentialOf })

const isExpired = ({ expiresAtMs }: OAuthGrant): boolean => expiresAtMs !== null && expiresAtMs <= Date.now()
const isDue = ({ renewAtMs, problem, refreshToken, ...grant }: OAuthGrant): boolean =>
  problem !== null ||
  (refreshToken === null ? isExpired(grant as OAuthGrant) : renewAtMs !== null && renewAtMs <= Date.now())

const withToken = (target: UpstreamTarget, { accessToken }: OAuthGrant): UpstreamTarget => ({
  ...target,
  secrets: {
    ...target.secrets,
    credential: { in: 'header', name: 'Authorization', prefix: 'Bearer ', values: [accessToken] },
  },
})

const required = ({ name, credentialOf }: UpstreamTarget, problem: string): Refusal =>
  loginRequired(name, credentialOf, problem)
