import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'
import { Refusal } from '../../base/errors.ts'
import type { Caller } from '../caller.ts'

const algorithm = 'aes-256-gcm'
const keyBytes = 32
const nonceBytes = 12
const tagBytes = 16

/**
 * Seals what a client keeps for us between two requests: it can neither read nor change it, nor use it as another
 * caller, for another purpose, or later than it was meant for.
 */
export class Sealing {
  readonly #key: Buffer

  /** @param secret 32 bytes, base64; the same for every front of a store. */
  constructor(secret: string) {
    this.#key = Buffer.from(secret, 'base64')
    if (this.#key.length !== keyBytes) throw new Error('the secret of sealed states is damaged')
  }

  /**
   * @param purpose what it may be opened for again, to the letter.
   * @param lifeMs how long from now it can be opened.
   */
  seal(caller: Caller, purpose: string, content: unknown, lifeMs: number): string {
    const nonce = randomBytes(nonceBytes)
    const cipher = createCipheriv(algorithm, this.#key, nonce)
    cipher.setAAD(boundTo(caller, purpose))
    const plain = JSON.stringify({ until: Date.now() + lifeMs, content })
    const sealed = Buffer.concat([nonce, cipher.update(plain, 'utf8'), cipher.final(), cipher.getAuthTag()])
    return sealed.toString('base64url')
  }

  /** BOUNDARY: a state comes from a client. @throws Refusal `state_invalid`. */
  open(caller: Caller, purpose: string, state: string): unknown {
    const sealed = Buffer.from(state, 'base64url')
    // The decoder skips what is not of its alphabet; a state must be what was given out, not something like it.
    if (sealed.length < nonceBytes + tagBytes || sealed.toString('base64url') !== state) throw invalid()
    try {
      const decipher = createDecipheriv(algorithm, this.#key, sealed.subarray(0, nonceBytes))
      decipher.setAAD(boundTo(caller, purpose))
      decipher.setAuthTag(sealed.subarray(-tagBytes))
      const plain = Buffer.concat([decipher.update(sealed.subarray(nonceBytes, -tagBytes)), decipher.final()])
      const { until, content } = JSON.parse(plain.toString('utf8')) as { until: number; content: unknown }
      if (until < Date.now()) throw invalid()
      return content
    } catch {
      throw invalid()
    }
  }
}

export const newSealingSecret = (): string => randomBytes(keyBytes).toString('base64')

const boundTo = ({ orgId, keyId }: Caller, purpose: string): Buffer =>
  Buffer.from(JSON.stringify([orgId, keyId, purpose]), 'utf8')

const invalid = (): Refusal => new Refusal('state_invalid')
