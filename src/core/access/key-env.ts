import type { KeyRow } from '../../store/store.ts'
import type { Vault } from './vault.ts'

export const placeOfEnv = (keyId: string): string => `keys/${keyId}/env`

/** Opened variables are kept for so many keys; more are opened anew. */
const keptMax = 1_000

/** Variables of keys, opened once for as long as they stay what they are. */
export class KeyEnv {
  readonly #vault: Vault
  readonly #opened = new Map<string, { sealed: string; env: Readonly<Record<string, string>> }>()

  constructor(vault: Vault) {
    this.#vault = vault
  }

  of({ id, env: sealed }: Pick<KeyRow, 'id' | 'env'>): Readonly<Record<string, string>> {
    if (sealed === null) return noVariables
    const known = this.#opened.get(id)
    if (known?.sealed === sealed) return known.env
    const env = JSON.parse(this.#vault.open(placeOfEnv(id), sealed)) as Record<string, string>
    if (this.#opened.size >= keptMax) this.#opened.clear()
    this.#opened.set(id, { sealed, env })
    return env
  }
}

export const noVariables: Readonly<Record<string, string>> = {}
