import { isIP } from 'node:net'
import { Agent, buildConnector } from 'undici'
import { Refusal } from '../base/errors.ts'
import { type AllowedDestinations, requireAllowed, toDestination } from './destination.ts'
import type { Resolve } from './outbound.ts'

const connectTimeoutMs = 10_000
const maxHeaderSize = 32 * 1024
/** Shorter than the idle timeout of common servers, so that no request meets a closing connection. */
const keepAliveTimeout = 4_000

/**
 * Creates a pool of connections that only reach allowed addresses. A name is resolved when a connection is opened, all of
 * its addresses are checked, and the connection uses a checked address. Redirects are not followed.
 * @param connections maximum number to one origin; further requests wait.
 * @param roots authorities whose certificates are accepted, in PEM; by default those of Node.js.
 */
export function guardedAgent(
  allowed: AllowedDestinations,
  resolve: Resolve,
  connections: number,
  roots?: readonly string[],
): Agent {
  const trust = roots && { ca: [...roots] }
  return new Agent({
    connections,
    pipelining: 1,
    maxHeaderSize,
    keepAliveTimeout,
    connect: (options, callback) => {
      checkedAddress(`${options.protocol}//${options.host}/`, allowed, resolve).then(
        ({ host, address }) => {
          const connect = buildConnector({ timeout: connectTimeoutMs, allowH2: false, ...trust })
          // The name is used for the certificate.
          connect({ ...options, hostname: address, ...(isIP(host) === 0 && { servername: host }) }, callback)
        },
        (error: Error) => callback(error, null),
      )
    },
  })
}

/** @throws Refusal `destination_refused`, `invalid_argument`; Error if the name cannot be resolved. */
async function checkedAddress(
  url: string,
  allowed: AllowedDestinations,
  resolve: Resolve,
): Promise<{ host: string; address: string }> {
  const destination = toDestination('url', url, allowed)
  const { host } = destination
  const addresses = isIP(host) ? [host] : await resolve(host)
  requireAllowed(destination, addresses, allowed)
  return { host, address: addresses[0]! }
}

/** Returns the refusal that caused a failed connection, if one did. */
export function refusalIn(error: unknown): Refusal | undefined {
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof Refusal) return cause
  }
  return undefined
}
