import type { Socket } from 'node:net'
import { connect as connectTls, createSecureContext, type SecureContext, TLSSocket } from 'node:tls'
import { plainName } from '../../base/network.ts'
import { NetworkRefused, type Target, where } from '../decision.ts'
import type { Leaves } from './authority.ts'

/** Either side may take this long for its part of a handshake. */
const handshakeWithinMs = 15_000
/** HTTP/2 is not opened; clients fall back to HTTP/1.1. */
const ALPNProtocols = ['http/1.1']

/**
 * Answers a handshake of a program in place of its server.
 * @returns the opened connection; undefined if the handshake failed, after which the socket is destroyed.
 * @throws NetworkRefused `refused_name` if the program asks for another name, or for none.
 */
export async function openTls(socket: Socket, { host, port }: Target, leaves: Leaves): Promise<TLSSocket | undefined> {
  const name = plainName(host)
  const secureContext = await leaves.contextFor(name)
  if (socket.destroyed) return undefined
  const refused = new NetworkRefused('refused_name', `the name in the connection is not ${where(host, port)}`)
  let isOther = false
  const opened = new TLSSocket(socket, {
    isServer: true,
    secureContext,
    ALPNProtocols,
    SNICallback: (asked, done) => {
      isOther = plainName(asked) !== name
      if (isOther) done(refused)
      else done(null, secureContext)
    },
  })
  opened.on('error', () => opened.destroy())
  const timer = setTimeout(() => opened.destroy(), handshakeWithinMs)
  const isSecure = await new Promise<boolean>((resolve) => {
    opened.once('secure', () => resolve(true))
    opened.once('close', () => resolve(false))
  })
  clearTimeout(timer)
  if (isOther) throw refused
  if (!isSecure) return void socket.destroy()
  // Without a name, no server could know which site is meant.
  if ((opened as { servername?: string | false }).servername) return opened
  throw refused
}

const contexts = new WeakMap<readonly string[], SecureContext>()

/** Reading all authorities of a machine takes milliseconds. */
function contextWith(roots: readonly string[]): SecureContext {
  const known = contexts.get(roots)
  if (known !== undefined) return known
  const context = createSecureContext({ ca: [...roots], minVersion: 'TLSv1.2' })
  contexts.set(roots, context)
  return context
}

/**
 * Begins TLS with a server, whose certificate must be valid for its name.
 * @param roots certificates of the authorities that are trusted, in PEM.
 * @throws NetworkRefused `unreachable`.
 */
export function secure(socket: Socket, { host, port }: Target, roots: readonly string[]): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const secured = connectTls({
      socket,
      servername: plainName(host),
      ALPNProtocols,
      secureContext: contextWith(roots),
    })
    const timer = setTimeout(() => secured.destroy(new Error('no answer in time')), handshakeWithinMs)
    secured.once('secureConnect', () => {
      clearTimeout(timer)
      secured.removeAllListeners('error')
      secured.on('error', () => secured.destroy())
      resolve(secured)
    })
    secured.once('error', (error: NodeJS.ErrnoException) => {
      clearTimeout(timer)
      socket.destroy()
      const problem = (error.code ?? 'no TLS').replace(/[^\w ]/g, '?').slice(0, 64)
      reject(new NetworkRefused('unreachable', `${where(host, port)} has no valid certificate (${problem})`))
    })
  })
}
