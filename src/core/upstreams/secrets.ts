import { LRUCache } from 'lru-cache'
import type { UpstreamRow } from '../../store/upstream-rows.ts'
import type { Vault } from '../access/vault.ts'

export const placeOfUpstream = (id: string): string => `upstreams/${id}/secrets`

/** Where a credential is added to each request. */
export const credentialPlaces = ['header', 'query', 'body'] as const

/** What authenticates the gateway to an upstream. */
export interface UpstreamCredential {
  in: (typeof credentialPlaces)[number]
  /** Header or query parameter; for `body` the path in the message, such as `params.arguments.api_key`. */
  name: string
  /** Precedes each value, such as `Bearer `. */
  prefix: string
  /** Used in turn. */
  values: readonly string[]
}

/** The sealed part of an upstream. */
export interface UpstreamSecrets {
  /** Sent with every request. */
  headers: Readonly<Record<string, string>>
  credential: UpstreamCredential | null
}

/** Upstreams whose secrets are kept decrypted. */
const openedMax = 1_000

/** Decrypts the secrets of upstreams, once for as long as they do not change. */
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

/** Returns what may be shown of a secret: its last four characters, if it is long enough for that. */
export const hintOf = (secret: string): string => (secret.length < 12 ? '…' : `…${secret.slice(-4)}`)

/** A credential as an administrator writes it. */
export interface CredentialSettings {
  in: UpstreamCredential['in']
  name: string
  prefix?: string
  /** Used in turn. */
  values: readonly string[]
}
