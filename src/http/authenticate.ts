import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { BlockList, isIP } from 'node:net'
import { monotonicMs } from '../base/clock.ts'
import { Refusal, StartRefused } from '../base/errors.ts'
import { type Admin, requireInstance } from '../core/admin/admin.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import { AuthFailureLimiter } from './auth-failure-limiter.ts'
import { clientAddress, clientNetwork, TrustedProxies } from './client-address.ts'

/**
 * Who is asking.
 * @throws Refusal `unauthorized`, `too_many_failures`, `profile_gone`.
 */
export type Authenticate<Who> = (request: IncomingMessage) => Who | Promise<Who>

/** Callers and administrators are known by different secrets, and neither is taken for the other. */
export interface Authentication {
  caller: Authenticate<Caller>
  admin: Authenticate<Admin>
  /** Who may read what the instance tells of itself: a token of the whole instance, in dev mode whoever may call. */
  operator: Authenticate<void>
}

const loopback = new BlockList()
loopback.addSubnet('127.0.0.0', 8, 'ipv4')
loopback.addAddress('::1', 'ipv6')

const isLoopback = (address: string): boolean => {
  const version = isIP(address)
  return version !== 0 && loopback.check(address, version === 4 ? 'ipv4' : 'ipv6')
}

/**
 * Dev mode: whoever reaches the loopback address is the developer, who may run code and nothing administrative. What
 * a client sends as a key is not looked at, so that a configuration with a key works unchanged.
 */
async function asDeveloper(core: Core): Promise<Authenticate<Caller>> {
  const developer = await core.developer()
  return ({ socket: { remoteAddress = '' } }) => {
    // BOUNDARY: the listener is bound to loopback; this holds even if something forwards to it.
    if (remoteAddress !== '127.0.0.1' && !isLoopback(remoteAddress.replace(/^::ffff:/, '')))
      throw new Refusal('unauthorized')
    return developer
  }
}

/** Who has the right secret is let in at once; who fails too often is told to wait, which a valid one never is. */
function bySecret<Who>(
  who: (secret: string) => Promise<Who>,
  failures: AuthFailureLimiter,
  trusted: TrustedProxies,
): Authenticate<Who> {
  return async (request) => {
    try {
      const secret = secretOf(request.headers)
      if (secret === undefined) throw new Refusal('unauthorized')
      return await who(secret)
    } catch (error) {
      if (!(error instanceof Refusal) || error.code !== 'unauthorized') throw error
      const network = clientNetwork(clientAddress(request, trusted))
      const retryAfterSeconds = failures.count(network, monotonicMs())
      throw retryAfterSeconds === 0 ? error : new Refusal('too_many_failures', { retryAfterSeconds })
    }
  }
}

/** The key that a request carries. With both headers `x-api-key` is it: `Authorization` may be a proxy's. */
function secretOf(headers: IncomingHttpHeaders): string | undefined {
  const apiKey = headers['x-api-key']
  if (apiKey !== undefined) return Array.isArray(apiKey) ? undefined : apiKey.trim()
  return /^Bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1]
}

/**
 * Chooses how callers are known; who administers needs a token in dev mode, too.
 * @throws StartRefused where the server would be open to others without keys.
 */
export async function authenticator(
  core: Core,
  { dev, host, trustedProxies }: { dev: boolean; host: string; trustedProxies: readonly string[] },
): Promise<Authentication> {
  const [failures, trusted] = [new AuthFailureLimiter(), new TrustedProxies(trustedProxies)]
  const admin = bySecret((secret) => core.authenticateAdmin(secret), failures, trusted)
  if (!dev) {
    const caller = bySecret((secret) => core.authenticate(secret), failures, trusted)
    const operator = async (request: IncomingMessage) => requireInstance(await admin(request), 'member')
    return { admin, caller, operator }
  }
  if (host !== 'localhost' && !isLoopback(host)) {
    throw new StartRefused(
      `Dev mode needs no key, so it is served on loopback only, not on ${host}.`,
      'Leave host at 127.0.0.1.',
    )
  }
  const caller = await asDeveloper(core)
  return { admin, caller, operator: (request) => void caller(request) }
}
