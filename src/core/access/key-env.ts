import { LRUCache } from 'lru-cache'
import type { KeyRow } from '../../store/store.ts'
import type { Vault } from './vault.ts'

export const placeOfEnv = (keyId: string): string => `keys/${keyId}/env`

/** Maximum number of keys whose decrypted variables are cached. */
const openedMax = 1_000

/** Decrypts the variables of keys, and caches them until they change. */
export class KeyEnv {
  readonly #vault: Vault
  readonly #opened = new LRUCache<string, { sealed: string; env: Readonly<Record<string, string>> }>({ max: openedMax })

  constructor(vault: Vault) {
    this.#vault = vault
  }

  of({ id, env: sealed }: Pick<KeyRow, 'id' | 'env'>): Readonly<Record<string, string>> {
    if (sealed === null) return noVariables
    const known = this.#opened.get(id)
    if (known?.sealed === sealed) return known.env
    const env = JSON.parse(this.#vault.open(placeOfEnv(id), sealed)) as Record<string, string>
    this.#opened.set(id, { sealed, env })
    return env
  }
}

export const noVariables: Readonly<Record<string, string>> = {}
