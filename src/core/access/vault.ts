import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'

/** AES-256-GCM: https://csrc.nist.gov/pubs/sp/800/38/d/final */
const algorithm = 'aes-256-gcm'
export const masterKeyBytes = 32
const nonceBytes = 12
const tagBytes = 16
/** Of the form below; another one gets another name. */
const form = 'v1.'

/**
 * Keeps secrets unreadable in the rows. What is sealed for one place opens in no other, so a value cannot be moved from
 * one record to another by someone who can write to the database.
 */
export class Vault {
  readonly #key: Buffer

  /** @param key 32 bytes. */
  constructor(key: Buffer) {
    if (key.length !== masterKeyBytes) throw new Error(`a master key has ${masterKeyBytes} bytes, not ${key.length}`)
    this.#key = key
  }

  /** @param place table, id and field of the record, such as `keys/key_1/env`. */
  seal(place: string, text: string): string {
    const nonce = randomBytes(nonceBytes)
    const cipher = createCipheriv(algorithm, this.#key, nonce, { authTagLength: tagBytes }).setAAD(Buffer.from(place))
    const sealed = Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()])
    return form + sealed.toString('base64url')
  }

  /** @throws SealBroken where it was sealed for another place or with another key, or was changed. */
  open(place: string, sealed: string): string {
    if (!sealed.startsWith(form)) throw new SealBroken(place)
    const bytes = Buffer.from(sealed.slice(form.length), 'base64url')
    if (bytes.length < nonceBytes + tagBytes) throw new SealBroken(place)
    const decipher = createDecipheriv(algorithm, this.#key, bytes.subarray(0, nonceBytes), { authTagLength: tagBytes })
    decipher.setAAD(Buffer.from(place)).setAuthTag(bytes.subarray(-tagBytes))
    try {
      return Buffer.concat([decipher.update(bytes.subarray(nonceBytes, -tagBytes)), decipher.final()]).toString('utf8')
    } catch {
      throw new SealBroken(place)
    }
  }
}

export class SealBroken extends Error {
  constructor(place: string) {
    super(`${place} cannot be opened: it was sealed with another master key, or changed`)
  }
}
