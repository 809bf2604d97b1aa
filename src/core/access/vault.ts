import { aeadKeyBytes, decrypt, encrypt } from './aead.ts'

export const masterKeyBytes = aeadKeyBytes

/** Version of the stored format. */
const prefix = 'v1.'

/**
 * Encrypts the secrets in the database. A value is bound to its place and cannot be decrypted for another one, so write
 * access to the database does not permit moving it to another record.
 */
export class Vault {
  readonly #key: Buffer

  /** @param key 32 bytes. */
  constructor(key: Buffer) {
    if (key.length !== masterKeyBytes) throw new Error(`a master key has ${masterKeyBytes} bytes, not ${key.length}`)
    this.#key = key
  }

  /** Encrypts a text. @param place table, ID and field of the record, such as `keys/key_1/env`. */
  seal(place: string, text: string): string {
    return prefix + encrypt(this.#key, place, text).toString('base64url')
  }

  /** Decrypts a text. @throws SealBroken if it was sealed for another place or with another key, or was changed. */
  open(place: string, sealed: string): string {
    if (!sealed.startsWith(prefix)) throw new SealBroken(place)
    try {
      return decrypt(this.#key, place, Buffer.from(sealed.slice(prefix.length), 'base64url'))
    } catch {
      throw new SealBroken(place)
    }
  }
}

export class SealBroken extends Error {
  constructor(place: string) {
    super(`Cannot decrypt ${place}: it was encrypted with another master key, or changed`)
  }
}
