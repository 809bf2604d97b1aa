import { randomBytes } from 'node:crypto'
import { Refusal } from '../../base/errors.ts'
import type { Caller } from '../caller.ts'
import { aeadKeyBytes, decrypt, encrypt } from './aead.ts'

/**
 * Seals state that a client keeps between two requests. The client can neither read nor change it, and it can be used
 * by the same caller only, for the same purpose, until it expires.
 */
export class Sealing {
  readonly #key: Buffer

  /** @param secret 32 bytes, base64; the same for every front of a store. */
  constructor(secret: string) {
    this.#key = Buffer.from(secret, 'base64')
    if (this.#key.length !== aeadKeyBytes) throw new Error('the secret of sealed states is damaged')
  }

  /**
   * @param purpose required, to the letter, to open it.
   * @param lifeMs how long from now it can be opened.
   */
  seal(caller: Caller, purpose: string, content: unknown, lifeMs: number): string {
    const text = JSON.stringify({ until: Date.now() + lifeMs, content })
    return encrypt(this.#key, contextOf(caller, purpose), text).toString('base64url')
  }

  /** BOUNDARY: a state comes from a client. @throws Refusal `state_invalid`. */
  open(caller: Caller, purpose: string, state: string): unknown {
    const sealed = Buffer.from(state, 'base64url')
    // The decoder skips characters outside its alphabet, so other texts decode to the same bytes.
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
