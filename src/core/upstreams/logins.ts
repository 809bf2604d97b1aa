import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { Store } from '../../store/store.ts'
import type { Vault } from '../access/vault.ts'
import { invalid } from './checks.ts'
import {
  type AuthorizationServer,
  type CredentialRef,
  type OAuthClient,
  type OAuthGrant,
  placeOfCredential,
  type StoredCredentials,
} from './stored-credentials.ts'
import type { UpstreamTarget } from './upstreams.ts'

/** A login that has begun: the user has to open a link. */
export type PendingLogin = {
  upstreamUrl: string
  expiresAtMs: number
  server: AuthorizationServer
  client: OAuthClient
  resource: string
  scope: string | null
} & (
  | { kind: 'browser'; state: string; codeVerifier: string; redirectUri: string }
  | { kind: 'device'; deviceCode: string }
)

/** How a user logs in. `device` needs no browser on the machine of the command. */
export type LoginMethod = { kind: 'browser'; redirectUri: string } | { kind: 'device' }

/** What the user has to do. */
export interface LoginInstructions {
  /** Link to open. */
  url: string
  /** Code to enter there; `null` if the link contains it. */
  userCode: string | null
  expiresAtMs: number
  /** Time between two attempts to complete a login by device. */
  pollIntervalMs: number | null
}

/** Logs in to the authorization servers of upstreams. */
export interface UpstreamOAuth {
  /** @throws Refusal `upstream_login_failed`. */
  begin(
    target: UpstreamTarget,
    method: LoginMethod,
  ): Promise<{ pending: PendingLogin; instructions: LoginInstructions }>
  /**
   * @param redirectedTo the address that the browser was redirected to; `undefined` for a login by device.
   * @returns `null` if the user has not completed the login yet.
   * @throws Refusal `upstream_login_failed`, `invalid_argument`.
   */
  complete(target: UpstreamTarget, pending: PendingLogin, redirectedTo: string | undefined): Promise<OAuthGrant | null>
}

/** Where the authorization server redirects a browser: to the machine of the user, who passes the address on. */
const loopback = /^http:\/\/(?:127\.0\.0\.1|\[::1\]|localhost)(?::\d{1,5})?\/callback$/

/** Logins to upstreams, from their begin to the stored tokens. */
export class UpstreamLogins {
  readonly #store: Pick<Store, 'upstreamCredentials'>
  readonly #vault: Vault
  readonly #credentials: StoredCredentials
  readonly #oauth: UpstreamOAuth

  constructor(
    store: Pick<Store, 'upstreamCredentials'>,
    vault: Vault,
    credentials: StoredCredentials,
    oauth: UpstreamOAuth,
  ) {
    this.#store = store
    this.#vault = vault
    this.#credentials = credentials
    this.#oauth = oauth
  }

  /**
   * Begins a login. It replaces an earlier one of the same credential that was not completed.
   * @param keyId key that the tokens are for; empty for all keys of the organization.
   * @throws Refusal `invalid_argument`, `upstream_login_failed`.
   */
  async begin(target: UpstreamTarget, keyId: string, method: LoginMethod): Promise<LoginInstructions> {
    requireOAuth(target)
    if (method.kind === 'browser' && !loopback.test(method.redirectUri)) {
      throw invalid(
        'redirect_uri',
        'must be http://127.0.0.1:PORT/callback, which only the machine of the user can read',
      )
    }
    const { pending, instructions } = await this.#oauth.begin(target, method)
    const ref = { upstreamId: target.id, keyId }
    const pendingLogin = this.#vault.seal(placeOfCredential(ref, 'pendingLogin'), JSON.stringify(pending))
    await this.#store.upstreamCredentials.put({ ...ref, pendingLogin, updatedAt: timestamp() })
    return instructions
  }

  /**
   * Completes a login, and stores its tokens.
   * @returns `false` if the user has not completed it yet.
   * @throws Refusal `invalid_argument`, `upstream_login_failed`.
   */
  async complete(target: UpstreamTarget, keyId: string, redirectedTo: string | undefined): Promise<boolean> {
    requireOAuth(target)
    const ref = { upstreamId: target.id, keyId }
    const row = await this.#store.upstreamCredentials.get(ref.upstreamId, ref.keyId)
    const pending = row?.pendingLogin ? this.#open(ref, row.pendingLogin) : undefined
    const { name: upstream } = target
    if (row === undefined || pending === undefined || pending.expiresAtMs < Date.now()) {
      throw new Refusal('upstream_login_failed', { upstream, problem: 'no login has begun, or it took too long' })
    }
    if (pending.upstreamUrl !== target.url) {
      throw new Refusal('upstream_login_failed', { upstream, problem: 'its address has changed since the login began' })
    }
    const isOnce = pending.kind === 'browser' && redirectedTo !== undefined
    // An authorization code works once, and so does the state that protects it.
    if (isOnce && !(await this.#store.upstreamCredentials.takePending(row))) {
      throw new Refusal('upstream_login_failed', { upstream, problem: 'this login was already completed' })
    }
    const grant = await this.#oauth.complete(target, pending, redirectedTo)
    if (grant === null) return false
    await this.#credentials.put(ref, grant)
    await this.#store.upstreamCredentials.put({ ...ref, pendingLogin: null, updatedAt: timestamp() })
    return true
  }

  #open(ref: CredentialRef, sealed: string): PendingLogin {
    return JSON.parse(this.#vault.open(placeOfCredential(ref, 'pendingLogin'), sealed)) as PendingLogin
  }
}

function requireOAuth({ secrets, name: upstream }: UpstreamTarget): void {
  if (!secrets.oauth) {
    throw new Refusal('upstream_login_failed', { upstream, problem: 'it is not configured for logins (oauth)' })
  }
}
