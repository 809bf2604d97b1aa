import { LRUCache } from 'lru-cache'
import { timestamp } from '../../base/clock.ts'
import type { Store } from '../../store/store.ts'
import type { UpstreamCredentialRow } from '../../store/upstream-credentials.ts'
import type { Vault } from '../access/vault.ts'

/** Time after which a new credential takes effect in another process. */
const knownMs = 250
/** Maximum number of credentials that are cached. */
const cachedMax = 10_000

/** The endpoints of an authorization server that are used after a login: https://www.rfc-editor.org/rfc/rfc8414 */
export type AuthorizationServer = {
  issuer: string
  authorization_endpoint: string
  token_endpoint: string
  response_types_supported: string[]
  device_authorization_endpoint?: string | undefined
  token_endpoint_auth_methods_supported?: string[] | undefined
  code_challenge_methods_supported?: string[] | undefined
  authorization_response_iss_parameter_supported?: boolean | undefined
}

/** The client as which the gateway is known to an authorization server. */
export type OAuthClient = {
  client_id: string
  client_secret?: string | undefined
  token_endpoint_auth_method?: string | undefined
}

/** A login that has been completed. */
export interface OAuthGrant {
  kind: 'oauth'
  accessToken: string
  refreshToken: string | null
  /** Wall clock; `null` if the authorization server does not say when the access token expires. */
  expiresAtMs: number | null
  /** Time from which the token is renewed before it is used. */
  renewAtMs: number | null
  scope: string | null
  server: AuthorizationServer
  client: OAuthClient
  /** The address that tokens are requested for: https://www.rfc-editor.org/rfc/rfc8707 */
  resource: string
  /** Why the authorization server no longer renews the token; `null` while it does. */
  problem: string | null
}

/** A credential of a key: values for the place that the upstream defines, or tokens. */
export type StoredCredential = { kind: 'values'; values: readonly string[] } | OAuthGrant

export type CredentialRef = Pick<UpstreamCredentialRow, 'upstreamId' | 'keyId'>

export const placeOfCredential = ({ upstreamId, keyId }: CredentialRef, field: 'secrets' | 'pendingLogin'): string =>
  `upstreamCredentials/${upstreamId}/${keyId}/${field}`

/** The credentials of keys, and the tokens of logins. */
export class StoredCredentials {
  readonly #store: Pick<Store, 'upstreamCredentials'>
  readonly #vault: Vault
  readonly #known = new LRUCache<string, { sealed: string | null; credential: StoredCredential | null }>({
    ...{ max: cachedMax, ttl: knownMs },
  })

  constructor(store: Pick<Store, 'upstreamCredentials'>, vault: Vault) {
    this.#store = store
    this.#vault = vault
  }

  /** Returns a credential, as it was at most a quarter of a second ago; `null` if it does not exist. */
  async get(ref: CredentialRef): Promise<StoredCredential | null> {
    return (this.#known.get(nameOf(ref)) ?? (await this.#read(ref))).credential
  }

  /** Returns a credential as it is now, and its stored form for `renew`. */
  latest(ref: CredentialRef): Promise<{ sealed: string | null; credential: StoredCredential | null }> {
    return this.#read(ref)
  }

  async put(ref: CredentialRef, credential: StoredCredential): Promise<void> {
    await this.#store.upstreamCredentials.put({ ...ref, ...this.sealed(ref, credential) })
    this.#known.delete(nameOf(ref))
  }

  /**
   * Replaces a grant, unless another process has replaced it meanwhile.
   * @param old the stored form that was renewed.
   * @returns the current credential.
   */
  async renew(ref: CredentialRef, old: string, renewed: OAuthGrant): Promise<StoredCredential | null> {
    await this.#store.upstreamCredentials.replace({ ...ref, ...this.sealed(ref, renewed), pendingLogin: null }, old)
    return (await this.#read(ref)).credential
  }

  async remove({ upstreamId, keyId }: CredentialRef): Promise<boolean> {
    this.#known.delete(nameOf({ upstreamId, keyId }))
    return this.#store.upstreamCredentials.remove(upstreamId, keyId)
  }

  /** Returns the fields of a row with this credential. */
  sealed(ref: CredentialRef, credential: StoredCredential): { secrets: string; updatedAt: string } {
    const secrets = this.#vault.seal(placeOfCredential(ref, 'secrets'), JSON.stringify(credential))
    return { secrets, updatedAt: timestamp() }
  }

  async #read(ref: CredentialRef) {
    const sealed = (await this.#store.upstreamCredentials.get(ref.upstreamId, ref.keyId))?.secrets ?? null
    const text = sealed && this.#vault.open(placeOfCredential(ref, 'secrets'), sealed)
    const read = { sealed, credential: text === null ? null : (JSON.parse(text) as StoredCredential) }
    this.#known.set(nameOf(ref), read)
    return read
  }
}

const nameOf = ({ upstreamId, keyId }: CredentialRef): string => `${upstreamId} ${keyId}`
