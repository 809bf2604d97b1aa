import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'

/** AES-256-GCM: https://csrc.nist.gov/pubs/sp/800/38/d/final */
const algorithm = 'aes-256-gcm'
export const aeadKeyBytes = 32
const nonceBytes = 12
const authTagLength = 16

/**
 * Encrypts a text with a random nonce.
 * @param context text that `decrypt` requires as well; it is not part of the result.
 */
export function encrypt(key: Uint8Array, context: string, text: string): Buffer {
  const nonce = randomBytes(nonceBytes)
  const cipher = createCipheriv(algorithm, key, nonce, { authTagLength }).setAAD(Buffer.from(context))
  return Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()])
}

/** Decrypts a result of `encrypt`. @throws Error if it was changed, or encrypted with another key or context. */
export function decrypt(key: Uint8Array, context: string, encrypted: Buffer): string {
  if (encrypted.length < nonceBytes + authTagLength) throw new Error('too short to have been encrypted')
  const decipher = createDecipheriv(algorithm, key, encrypted.subarray(0, nonceBytes), { authTagLength })
  decipher.setAAD(Buffer.from(context)).setAuthTag(encrypted.subarray(-authTagLength))
  const text = Buffer.concat([decipher.update(encrypted.subarray(nonceBytes, -authTagLength)), decipher.final()])
  return text.toString('utf8')
}
