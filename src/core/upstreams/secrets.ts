import { LRUCache } from 'lru-cache'
import type { UpstreamRow } from '../../store/upstream-rows.ts'
import type { Vault } from '../access/vault.ts'

export const placeOfUpstream = (id: string): string => `upstreams/${id}/secrets`

/** Where a credential is added to each request; `env`: it is a variable of the program. */
export const credentialPlaces = ['header', 'query', 'body', 'env'] as const

/** Which credential a call uses: that of the organization, that of its key, or the first only if its key has none. */
export const credentialModes = ['shared', 'per_key', 'per_key_or_shared'] as const

/** A credential that authenticates the gateway to an upstream. */
export interface UpstreamCredential {
  in: (typeof credentialPlaces)[number]
  /** Name of the header, query parameter or variable; for `body`, a path in the message such as `params.arguments.api_key`. */
  name: string
  /** Text before each value, such as `Bearer `. */
  prefix: string
  /** Requests use them in turn. */
  values: readonly string[]
}

/** The part of an upstream that is stored encrypted. */
export interface UpstreamSecrets {
  /** Sent with every request. */
  headers: Readonly<Record<string, string>>
  credential: UpstreamCredential | null
  /** Variables of a program; absent for other upstreams. */
  env?: Readonly<Record<string, string>>
  /** How to log in to the upstream with OAuth; absent if it is not used. */
  oauth?: OAuthSettings | null
}

/** How the gateway obtains tokens for an upstream. */
export interface OAuthSettings {
  /** A client that was registered by hand; `null` to register one automatically. */
  clientId: string | null
  clientSecret: string | null
  /** Scopes to request, separated by spaces; `null` for those that the upstream names. */
  scope: string | null
}

/** Maximum number of upstreams whose decrypted secrets are cached. */
const openedMax = 1_000

/** Decrypts the secrets of upstreams, and caches them until they change. */
export class OpenedSecrets {
  readonly #vault: Vault
  readonly #opened = new LRUCache<string, { sealed: string; secrets: UpstreamSecrets }>({ max: openedMax })

  constructor(vault: Vault) {
    this.#vault = vault
  }

  of({ id, secrets: sealed }: Pick<UpstreamRow, 'id' | 'secrets'>): UpstreamSecrets {
    const known = this.#opened.get(id)
    if (known?.sealed === sealed) return known.secrets
    const secrets = openSecrets(this.#vault, id, sealed)
    this.#opened.set(id, { sealed, secrets })
    return secrets
  }
}

export const openSecrets = (vault: Vault, id: string, sealed: string): UpstreamSecrets =>
  JSON.parse(vault.open(placeOfUpstream(id), sealed)) as UpstreamSecrets

export const sealSecrets = (vault: Vault, id: string, secrets: UpstreamSecrets): string =>
  vault.seal(placeOfUpstream(id), JSON.stringify(secrets))

/** Returns the last four characters of a secret, for display; none if it has fewer than 12. */
export const hintOf = (secret: string): string => (secret.length < 12 ? '…' : `…${secret.slice(-4)}`)

/** A credential as an administrator sets it. */
export interface CredentialSettings {
  in: UpstreamCredential['in']
  name: string
  prefix?: string
  /** Requests use them in turn. */
  values: readonly string[]
}

/** Logins as an administrator sets them. */
export interface OAuthRequest {
  /** Only if the authorization server registers no clients. */
  client_id?: string
  client_secret?: string
  /** Separated by spaces; by default those that the upstream names. */
  scope?: string
}
