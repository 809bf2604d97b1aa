import type { IncomingMessage } from 'node:http'
import { BlockList, isIP } from 'node:net'
import { Refusal, StartRefused } from '../base/errors.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'

/**
 * Who is asking.
 * @throws Refusal `unauthorized`.
 */
export type Authenticate = (request: IncomingMessage) => Promise<Caller>

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
export async function asDeveloper(core: Core): Promise<Authenticate> {
  const developer = await core.developer()
  return async ({ socket }) => {
    // BOUNDARY: the listener is bound to loopback; this holds even if something forwards to it.
    const from = socket.remoteAddress?.replace(/^::ffff:/, '') ?? ''
    if (!isLoopback(from)) throw new Refusal('unauthorized')
    return developer
  }
}

/**
 * Chooses how callers are known.
 * @throws StartRefused where the server would be open to others without keys.
 */
export async function authenticator(core: Core, { dev, host }: { dev: boolean; host: string }): Promise<Authenticate> {
  if (!dev) throw new StartRefused('Without keys only dev mode can be served.', 'Start with --dev, on loopback.')
  if (host !== 'localhost' && !isLoopback(host)) {
    throw new StartRefused(
      `Dev mode needs no key, so it is served on loopback only, not on ${host}.`,
      'Leave host at 127.0.0.1.',
    )
  }
  return asDeveloper(core)
}
