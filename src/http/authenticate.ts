import type { IncomingHttpHeaders } from 'node:http'
import { BlockList, isIP } from 'node:net'
import type { FastifyRequest } from 'fastify'
import { monotonicMs } from '../base/clock.ts'
import { Refusal, type RefusalCode, StartRefused } from '../base/errors.ts'
import { type Admin, requireInstance } from '../core/admin/admin.ts'
import { authenticateAdminByHash, tokenPrefix } from '../core/admin/tokens.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import { adminCaller, adminProfile } from '../core/runtime/admin-caller.ts'
import { runtimeTools } from '../tools/runtime/tools.ts'
import { AuthFailureLimiter } from './auth-failure-limiter.ts'
import { clientNetwork } from './client-address.ts'
import { hasLoginCookie, type Login, type Logins } from './console/logins.ts'
import { type ReadForwarded, toBlockList, withoutPort } from './forwarded.ts'

/**
 * Identifies the sender of a request.
 * @throws Refusal `key_missing`, `unauthorized`, `token_missing`, `token_invalid`, `too_many_failures`, `profile_gone`.
 */
export type Authenticate<Who> = (request: Sender) => Who | Promise<Who>

/** The part of a request that says who sent it. */
export type Sender = Pick<FastifyRequest, 'headers' | 'socket' | 'raw'> & { login?: Login | null }

/** Callers and administrators have different credentials; neither is accepted in place of the other. */
export interface Authentication {
  caller: Authenticate<Caller>
  admin: Authenticate<Admin>
  /** Accepts a key, or an admin token of the whole instance, whose caller has the runtime tools. */
  callerOrAdmin: Authenticate<Caller>
  /** As `operator`, and requires an address of `runtime_allowed`. @throws Refusal `address_not_allowed`. */
  runtime: Authenticate<Admin>
  /** Requires an admin token of the whole instance; in development mode the developer is accepted too. */
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
 * Accepts every request in development mode as the developer, who can run code but not administer. A key is ignored, so
 * that a client configuration with one works unchanged.
 */
async function asDeveloper(core: Core): Promise<Authenticate<Caller>> {
  const developer = await core.developer()
  return ({ socket: { remoteAddress = '' } }) => {
    // BOUNDARY: the listener is bound to loopback; this check holds even if something forwards to it.
    if (remoteAddress !== '127.0.0.1' && !isLoopback(remoteAddress.replace(/^::ffff:/, '')))
      throw new Refusal('unauthorized')
    return developer
  }
}

/** How a request is refused that sends no secret, or a wrong one. */
type SecretRefusals = readonly [missing: RefusalCode, wrong: RefusalCode]
const ofKeys: SecretRefusals = ['key_missing', 'unauthorized']
const ofTokens: SecretRefusals = ['token_missing', 'token_invalid']

/** Authenticates by a secret. Only failures are limited, so a valid secret is never delayed. */
function bySecret<Who>(
  who: (secret: string) => Promise<Who>,
  [missing, wrong]: SecretRefusals,
  failures: AuthFailureLimiter,
  forwarded: ReadForwarded,
): Authenticate<Who> {
  return async (request) => {
    // A client without a key is not configured yet. It guesses nothing, so it is not counted.
    if (sendsNoSecret(request.headers)) throw new Refusal(missing)
    try {
      const secret = secretOf(request.headers)
      if (secret === undefined) throw new Refusal('unauthorized')
      return await who(secret)
    } catch (error) {
      if (!(error instanceof Refusal) || error.code !== 'unauthorized') throw error
      const network = clientNetwork(forwarded(request.raw).address)
      const retryAfterSeconds = failures.count(network, monotonicMs())
      throw retryAfterSeconds === 0 ? new Refusal(wrong) : new Refusal('too_many_failures', { retryAfterSeconds })
    }
  }
}

/** Also true for a header whose variable was empty in the configuration of the client. */
const sendsNoSecret = ({ authorization = '', 'x-api-key': apiKey = '' }: IncomingHttpHeaders): boolean =>
  apiKey === '' && /^(?:Bearer *)?$/i.test(authorization)

/** Returns the secret of a request. `x-api-key` takes precedence: `Authorization` may belong to a proxy. */
export function secretOf(headers: IncomingHttpHeaders): string | undefined {
  const apiKey = headers['x-api-key']
  if (apiKey !== undefined) return Array.isArray(apiKey) ? undefined : apiKey.trim()
  // Clients of microsandbox may send their key alone.
  if (/^msb_\S+$/.test(headers.authorization ?? '')) return headers.authorization
  return /^Bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1]
}

/**
 * Builds the authentication of a server. Administration requires a token in development mode too.
 * @throws StartRefused where development mode would be reachable from other machines.
 */
export async function authenticator(
  core: Core,
  { dev, host, runtimeAllowed }: { dev: boolean; host: string; runtimeAllowed: readonly string[] },
  forwarded: ReadForwarded,
  logins: Logins,
): Promise<Authentication> {
  const failures = new AuthFailureLimiter()
  const byToken = bySecret((secret) => core.authenticateAdmin(secret), ofTokens, failures, forwarded)
  const admin: Authenticate<Admin> = (request) => {
    const login = sendsNoSecret(request.headers) ? logins.find(request.headers, request.raw.method ?? 'GET') : undefined
    if (login === undefined) return byToken(request)
    request.login = login
    return authenticateAdminByHash(core.adminContext, login.tokenHash)
  }
  const requireAddress = addressCheck(runtimeAllowed, forwarded)
  const ofInstance = async (request: Sender) => {
    requireAddress(request)
    const who = await admin(request)
    requireInstance(who, 'member')
    return who
  }
  const profile = adminProfile(core.runtime.profile)
  const asCaller = async (request: Sender) => adminCaller(profile, runtimeTools, await ofInstance(request))
  const orAdmin =
    (caller: Authenticate<Caller>): Authenticate<Caller> =>
    (request) =>
      secretOf(request.headers)?.startsWith(tokenPrefix) ? asCaller(request) : caller(request)
  if (!dev) {
    const caller = bySecret((secret) => core.authenticate(secret), ofKeys, failures, forwarded)
    const operator = async (request: Sender) => requireInstance(await admin(request), 'member')
    return { admin, caller, operator, callerOrAdmin: orAdmin(caller), runtime: ofInstance }
  }
  if (host !== 'localhost' && !isLoopback(host)) {
    throw new StartRefused(
      `Dev mode needs no key, so it is served on loopback only, not on ${host}.`,
      'Leave host at 127.0.0.1.',
    )
  }
  const caller = await asDeveloper(core)
  const runtime: Authenticate<Admin> = (request) => {
    if (!sendsNoSecret(request.headers) || hasLoginCookie(request.headers)) return ofInstance(request)
    requireAddress(request)
    caller(request)
    return developingAdmin
  }
  return { admin, caller, operator: (request) => void caller(request), callerOrAdmin: orAdmin(caller), runtime }
}

/** A caller without a token in development mode. It can read and change nothing. */
const developingAdmin: Admin = { id: 'developer', role: 'member', orgId: null }

/** @throws Refusal `address_not_allowed`, when the returned function is called from another address. */
function addressCheck(networks: readonly string[], forwarded: ReadForwarded): (request: Sender) => void {
  const allowed = toBlockList(networks)
  return ({ raw }) => {
    const address = withoutPort(forwarded(raw).address)
    if (networks.length === 0 || allowed.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4')) return
    throw new Refusal('address_not_allowed', { address })
  }
}
