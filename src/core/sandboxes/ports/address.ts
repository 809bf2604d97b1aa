import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'

const idBytes = 8
/** 128 bits, in hexadecimal. */
const signatureLength = 32

/** Returns the ID of a new published port. It is a part of the label of a host name, as the signature is. */
export const newPortId = (): string => randomBytes(idBytes).toString('hex')

/** Carries a grant to the origin of a preview, once. */
export const grantParameter = 'glovebox_grant'

/** What the address of a published port consists of. */
export interface PreviewAddress {
  port: number
  /** Its part of an address. */
  label: string
  /** Admits a browser without a key; `null` where everyone is admitted. */
  grant: string | null
  /** Below which previews have host names; empty: they have paths of the server. */
  domain: string
}

/**
 * Returns the address of a preview, and one that admits a browser without a key.
 * @param baseUrl of this server, without a trailing slash.
 */
export function previewUrls({ port, label, grant, domain }: PreviewAddress, baseUrl: string) {
  const path = `${baseUrl}/preview/${label}`
  const url = domain === '' ? `${path}/` : `${baseUrl.split(':')[0]}://${port}-${label}.${domain}/`
  if (grant === null) return { url, openUrl: url }
  return { url, openUrl: domain === '' ? `${path}~${grant}/` : `${url}?${grantParameter}=${grant}` }
}

/**
 * Signs the addresses of previews, so that no address can be guessed, or made from the database alone.
 * A *label* is the ID of a port with its signature; a *grant* admits a browser that has no key, for a limited time.
 */
export class PreviewAddresses {
  /** As in `PreviewAddress`. */
  readonly domain: string
  readonly #secret: Buffer

  /** @param secret 32 bytes, base64; the same for every front of a store. */
  constructor(secret: string, domain: string) {
    this.#secret = Buffer.from(secret, 'base64')
    this.domain = domain
  }

  labelOf(portId: string): string {
    return portId + this.#signatureOf(`preview ${portId}`)
  }

  /** BOUNDARY. @returns the ID of the port, or `undefined` for a label that was not signed here. */
  portIdOf(label: string): string | undefined {
    const portId = label.slice(0, idBytes * 2)
    return isEqual(label, this.labelOf(portId)) ? portId : undefined
  }

  /** @param keyId the key that gave it; the grant ends with it. */
  grantOf(portId: string, keyId: string, expiresMs: number): string {
    const until = Math.floor(expiresMs / 1_000).toString(36)
    return `${until}-${keyId}-${this.#signatureOf(`grant ${portId} ${keyId} ${until}`)}`
  }

  /** BOUNDARY. @returns the key that gave a grant, or `undefined` for one that is not for this port or has expired. */
  granterOf(portId: string, grant: string, nowMs: number): string | undefined {
    const [, until = '', keyId = ''] = /^([0-9a-z]{1,10})-([\w-]+)-[0-9a-f]+$/.exec(grant) ?? []
    const expiresMs = Number.parseInt(until, 36) * 1_000
    return expiresMs > nowMs && isEqual(grant, this.grantOf(portId, keyId, expiresMs)) ? keyId : undefined
  }

  #signatureOf(text: string): string {
    return createHmac('sha256', this.#secret).update(text).digest('hex').slice(0, signatureLength)
  }
}

function isEqual(given: string, expected: string): boolean {
  const [left, right] = [Buffer.from(given), Buffer.from(expected)]
  return left.length === right.length && timingSafeEqual(left, right)
}
