import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto'
import { Refusal } from '../../base/errors.ts'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import type { FileRequest } from './files.ts'

/** The request that a link permits. */
export interface Link extends FileRequest {
  keyId: string
  method: 'GET' | 'PUT'
  /** Exact size of an upload, in bytes; `null` for a download. */
  sizeBytes: number | null
  /** ISO 8601. */
  expiresAt: string
  /** ID of a single-use link; `null` for other links. */
  once: string | null
}

/** The signed part of a link, and the time at which it expires (ISO 8601). */
export interface SignedToken {
  token: string
  expiresAt: string
}

/** The capability that creating a link requires. Using a link is checked again by the operations on files. */
export const linkNeeds = { signDownload: 'files.read', signUpload: 'files.write' } as const

const lifeDefaultSeconds = 15 * 60
export const lifeMaxSeconds = 60 * 60
/** Maximum size of an uploaded file. */
export const uploadMaxBytes = 10 * 1024 ** 3

/**
 * Creates and checks links that permit one operation on one file, for a limited time, with the rights of the key that
 * created them. Using a link requires no key. A link becomes invalid with its key.
 */
export class SignedLinks {
  readonly #secret: Buffer
  readonly #store: Store

  /** @param secret 32 bytes, base64; the same for every front of a store. */
  constructor(store: Store, secret: string) {
    this.#store = store
    this.#secret = Buffer.from(secret, 'base64')
  }

  /** Creates a link that downloads a file. */
  signDownload(caller: Caller, file: FileRequest & { lifeSeconds?: number }): SignedToken {
    return this.#sign(caller, { ...file, method: 'GET', sizeBytes: null, once: false })
  }

  /**
   * Creates a link that uploads a file.
   * @param file `sizeBytes`: exact size of the file; `once`: whether the link can be used for one upload only.
   */
  signUpload(
    caller: Caller,
    file: FileRequest & { sizeBytes: number; once: boolean; lifeSeconds?: number },
  ): SignedToken {
    return this.#sign(caller, { ...file, method: 'PUT' })
  }

  #sign(
    { keyId }: Caller,
    link: FileRequest & { method: 'GET' | 'PUT'; sizeBytes: number | null; once: boolean; lifeSeconds?: number },
  ): SignedToken {
    const { once, lifeSeconds = lifeDefaultSeconds, method, source, id, path, sizeBytes } = link
    const expiresAt = new Date(Date.now() + lifeSeconds * 1_000).toISOString()
    const nonce = once ? randomBytes(12).toString('base64url') : null
    const signed = toText([keyId, method, source, id, path, sizeBytes, expiresAt, nonce])
    return { token: `${signed}.${this.#signatureOf(keyId, signed)}`, expiresAt }
  }

  /**
   * BOUNDARY: reads the token of a request. The caller must check that its key is still valid.
   * @throws Refusal link_invalid if the token is malformed, changed or expired.
   */
  read(token: string, method: 'GET' | 'PUT'): Link {
    const [signed = '', signature = '', rest] = token.split('.')
    const link = rest === undefined ? fromText(signed) : undefined
    if (link === undefined) throw new Refusal('link_invalid')
    // The key ID is not verified yet: a forged ID only selects a key that does not match the signature.
    const expected = Buffer.from(this.#signatureOf(link.keyId, signed), 'latin1')
    const given = Buffer.from(signature, 'latin1')
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) throw new Refusal('link_invalid')
    if (link.method !== method || link.expiresAt <= new Date().toISOString()) throw new Refusal('link_invalid')
    return link
  }

  /** Marks a single-use link as used. @throws Refusal link_used. */
  async use({ once, expiresAt }: Link): Promise<void> {
    if (once === null) return
    if (!(await this.#store.usedLinks.use(once, expiresAt))) throw new Refusal('link_used')
    await this.#store.sync()
  }

  /** Permits a single-use link to be used again after a failed upload. */
  async giveBack({ once }: Link): Promise<void> {
    if (once !== null) await this.#store.usedLinks.giveBack(once)
  }

  /** Returns the signature of a text, with a signing key that is derived for each API key (RFC 5869). */
  #signatureOf(keyId: string, signed: string): string {
    const key = hkdfSync('sha256', this.#secret, keyId, 'glovebox signed link', 32)
    return createHmac('sha256', Buffer.from(key)).update(signed).digest('base64url')
  }
}

export const newLinkSecret = (): string => randomBytes(32).toString('base64')

type Fields = [string, string, string, string, string, number | null, string, string | null]

const toText = (fields: Fields): string => Buffer.from(JSON.stringify(fields)).toString('base64url')

function fromText(text: string): Link | undefined {
  try {
    const fields: unknown = JSON.parse(Buffer.from(text, 'base64url').toString('utf8'))
    // Accepts only the canonical text of a link.
    if (!Array.isArray(fields) || toText(fields as Fields) !== text) return undefined
    const [keyId, method, source, id, path, sizeBytes, expiresAt, once] = fields as Fields
    if (method !== 'GET' && method !== 'PUT') return undefined
    if (source !== 'thread' && source !== 'volume') return undefined
    return { keyId, method, source, id, path, sizeBytes, expiresAt, once }
  } catch {
    return undefined
  }
}
