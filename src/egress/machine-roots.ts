import { readFileSync } from 'node:fs'
import { getCACertificates } from 'node:tls'

const fileOfDebian = '/etc/ssl/certs/ca-certificates.crt'
const certificatePattern = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

let known: readonly string[] | undefined

/** Returns the certificates of the authorities that this machine trusts, in PEM; where it has none, those of Node.js. */
export function machineRoots(): readonly string[] {
  known ??= certificatesIn(fileOfDebian) ?? getCACertificates('bundled')
  return known
}

/** Returns the certificates in a file; undefined if there are none. */
export function certificatesIn(file: string): readonly string[] | undefined {
  try {
    return readFileSync(file, 'latin1').match(certificatePattern) ?? undefined
  } catch {
    return undefined
  }
}
