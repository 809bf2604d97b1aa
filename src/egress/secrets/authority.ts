import 'reflect-metadata'
import { randomBytes, webcrypto } from 'node:crypto'
import { createSecureContext, type SecureContext } from 'node:tls'
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  cryptoProvider,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509Certificate,
  X509CertificateGenerator,
} from '@peculiar/x509'
import { LRUCache } from 'lru-cache'
import type { Authority } from '../protocol.ts'

cryptoProvider.set(globalThis.crypto)

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }
const day = 24 * 60 * 60_000
/** Of an authority: it ends with the runner, and its key with the broker. */
const authorityDays = 3650
const leafDays = 397
/** Names for which one jail has certificates; more are made again. */
const leavesMax = 256

const serialNumber = (): string => `00${randomBytes(15).toString('hex')}`

/** Creates a certificate authority, which no program but those of one jail, or of runs of one profile, trusts. */
export async function makeAuthority(): Promise<Authority> {
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])
  const now = Date.now()
  const certificate = await X509CertificateGenerator.createSelfSigned({
    serialNumber: serialNumber(),
    name: `CN=Glovebox ${randomBytes(8).toString('hex')}`,
    notBefore: new Date(now - day),
    notAfter: new Date(now + authorityDays * day),
    signingAlgorithm: algorithm,
    keys,
    extensions: [
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  })
  const key = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey)).toString('base64')
  return { certificate: `${certificate.toString('pem')}\n`, key }
}

/** The certificates of servers that an authority vouches for, made when they are first needed. */
export class Leaves {
  readonly #authority: Authority
  readonly #kept = new LRUCache<string, Promise<SecureContext>>({ max: leavesMax, ttl: (leafDays / 2) * day })

  constructor(authority: Authority) {
    this.#authority = authority
  }

  /** @param host a name. */
  contextFor(host: string): Promise<SecureContext> {
    const known = this.#kept.get(host)
    if (known !== undefined) return known
    const made = this.#make(host)
    this.#kept.set(host, made)
    made.catch(() => this.#kept.delete(host))
    return made
  }

  async #make(host: string): Promise<SecureContext> {
    const { certificate, key } = this.#authority
    const issuer = new X509Certificate(certificate)
    const pkcs8 = Buffer.from(key, 'base64')
    const signingKey = await webcrypto.subtle.importKey('pkcs8', pkcs8, algorithm, false, ['sign'])
    const keys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])
    const now = Date.now()
    const leaf = await X509CertificateGenerator.create({
      serialNumber: serialNumber(),
      subject: 'CN=Glovebox',
      issuer: issuer.subject,
      notBefore: new Date(now - day),
      notAfter: new Date(now + leafDays * day),
      signingAlgorithm: algorithm,
      publicKey: keys.publicKey,
      signingKey,
      extensions: [
        new BasicConstraintsExtension(false),
        new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
        new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth]),
        new SubjectAlternativeNameExtension([{ type: 'dns', value: host }]),
        await AuthorityKeyIdentifierExtension.create(issuer.publicKey),
      ],
    })
    const own = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey)).toString('base64')
    return createSecureContext({
      cert: `${leaf.toString('pem')}\n${certificate}`,
      key: `-----BEGIN PRIVATE KEY-----\n${own}\n-----END PRIVATE KEY-----\n`,
      minVersion: 'TLSv1.2',
    })
  }
}
