import { randomBytes } from 'node:crypto'
import { Refusal } from '../../base/errors.ts'
import type { Caller } from '../caller.ts'
import { aeadKeyBytes, decrypt, encrypt } from './aead.ts'

/**
 * Encrypts state that a client stores between two requests. The client can neither read nor change it. Only the same
 * caller can use it, for the same purpose, until it expires.
 */
export class Sealing {
  readonly #key: Buffer

  /** @param secret 32 bytes, base64; the same for every front of a store. */
  constructor(secret: string) {
    this.#key = Buffer.from(secret, 'base64')
    if (this.#key.length !== aeadKeyBytes) throw new Error('the secret of sealed states is damaged')
  }

  /**
   * Encrypts a state.
   * @param purpose `open` requires the same text.
   * @param lifeMs time from now until it expires.
   */
  seal(caller: Caller, purpose: string, content: unknown, lifeMs: number): string {
    const text = JSON.stringify({ until: Date.now() + lifeMs, content })
    return encrypt(this.#key, contextOf(caller, purpose), text).toString('base64url')
  }

  /** BOUNDARY: decrypts a state that a client sent. @throws Refusal `state_invalid`. */
  open(caller: Caller, purpose: string, state: string): unknown {
    const sealed = Buffer.from(state, 'base64url')
    // The decoder skips characters outside of its alphabet, so several texts decode to the same bytes.
    if (sealed.toString('base64url') !== state) throw invalid()
    try {
      const text = decrypt(this.#key, contextOf(caller, purpose), sealed)
      const { until, content } = JSON.parse(text) as { until: number; content: unknown }
      if (until < Date.now()) throw invalid()
      return content
    } catch {
      throw invalid()
    }
  }
}

export const newSealingSecret = (): string => randomBytes(aeadKeyBytes).toString('base64')

const contextOf = ({ orgId, keyId }: Caller, purpose: string): string => JSON.stringify([orgId, keyId, purpose])

const invalid = (): Refusal => new Refusal('state_invalid')
