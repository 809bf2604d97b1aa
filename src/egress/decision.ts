import { isIP } from 'node:net'
import {
  isName,
  type JailNetwork,
  type NetworkRule,
  type NetworkVerdict,
  parseRule,
  plainName,
} from '../base/network.ts'
import { classOf } from '../outbound/address.ts'

/** A destination as a program names it. */
export interface Target {
  /** A name or an address, without brackets. */
  host: string
  port: number
}

/** What can be read of a request of HTTP. */
export interface RequestLine {
  method: string
  /** With its query. */
  path: string
}

/** A connection that does not come about, with the message for the program. */
export class NetworkRefused extends Error {
  readonly verdict: Exclude<NetworkVerdict, 'allowed'>

  constructor(verdict: Exclude<NetworkVerdict, 'allowed'>, message: string) {
    super(message)
    this.name = 'NetworkRefused'
    this.verdict = verdict
  }
}

const usualPorts = [80, 443]

/** The policy of one jail. Immutable: a change makes another one. */
export class Decision {
  readonly #policy: JailNetwork['policy']
  readonly #rules: readonly NetworkRule[]
  /** Contain addresses that need not be public. */
  readonly #networks: readonly NetworkRule[]
  readonly #isOwn: (address: string) => boolean

  /**
   * @param network BOUNDARY: entries that are no rules were refused by the configuration, and are ignored here.
   * @param isOwn whether an address belongs to this machine.
   */
  constructor({ policy, rules, networks = [] }: JailNetwork, isOwn: (address: string) => boolean) {
    this.#policy = policy
    this.#rules = rules.map(parseRule).filter((rule) => rule !== undefined)
    this.#networks = [...this.#rules, ...networks.map(parseRule).filter((rule) => rule !== undefined)]
    this.#isOwn = isOwn
  }

  /** Whether a connection shows a name that must be the one that was decided on. */
  get dependsOnNames(): boolean {
    return this.#policy !== 'public'
  }

  /** Whether the policy lists the name on any port. */
  allowsName(name: string): boolean {
    if (this.#policy === 'public') return true
    return this.#rules.some((rule) => matchesName(rule, plainName(name)))
  }

  /**
   * Decides on a destination before its name is resolved.
   * @param request of HTTP, where it can be read.
   * @throws NetworkRefused `refused_destination`.
   */
  requireTarget({ host, port }: Target, request?: RequestLine): void {
    if (isIP(host) === 0 && !isName(plainName(host))) throw this.#refused(host, port, 'is no name')
    const matching = this.#rules.filter((rule) => matches(rule, host) && matchesPort(rule, port))
    if (this.#policy === 'public') {
      if (isIP(host) !== 0) this.requireAddress(host, { host, port })
      return
    }
    if (matching.length === 0) throw this.#refused(host, port, 'is not listed')
    if (matching.some((rule) => matchesRequest(rule, request))) return
    const limited =
      request === undefined ? 'only for requests that can be read' : `not for ${request.method} of this path`
    throw this.#refused(host, port, `is listed, but ${limited}`)
  }

  /** Whether `requireTarget` lets a destination pass. */
  allowsTarget(target: Target): boolean {
    try {
      this.requireTarget(target)
      return true
    } catch {
      return false
    }
  }

  /** Whether a destination is allowed only for some requests of HTTP, so that each of them must be read. */
  dependsOnRequests({ host, port }: Target): boolean {
    if (this.#policy === 'public') return false
    const matching = this.#rules.filter((rule) => matches(rule, host) && matchesPort(rule, port))
    return matching.length > 0 && !matching.some((rule) => matchesRequest(rule, undefined))
  }

  /**
   * Decides on an address of a destination that `requireTarget` let pass.
   * @throws NetworkRefused `refused_address`.
   */
  requireAddress(address: string, { host, port }: Target): void {
    if (this.allowsAddress(address, port)) return
    throw new NetworkRefused(
      'refused_address',
      `network policy ${this.#policy}: ${where(host, port)} is not at a public address, and network_allow does not name its network`,
    )
  }

  allowsAddress(address: string, port: number): boolean {
    const is = classOf(address)
    if (is === 'public' && !this.#isOwn(address)) return true
    // An address with an embedded one would be compared by that one.
    return is !== 'embedded' && this.#networks.some((rule) => matchesAddress(rule, address) && matchesPort(rule, port))
  }

  #refused(host: string, port: number, problem: string): NetworkRefused {
    return new NetworkRefused('refused_destination', `network policy ${this.#policy}: ${where(host, port)} ${problem}`)
  }
}

/** How a destination is written in a message: nothing of it can end a line. */
export const where = (host: string, port: number): string => {
  const shown = host.slice(0, 253).replace(/[^\x21-\x7e]/g, '?')
  return `${isIP(shown) === 6 ? `[${shown}]` : shown}:${port}`
}

const matches = (rule: NetworkRule, host: string): boolean =>
  isIP(host) === 0 ? matchesName(rule, plainName(host)) : matchesAddress(rule, host)

function matchesName({ target }: NetworkRule, name: string): boolean {
  switch (target.kind) {
    case 'name':
      return name === target.name
    case 'suffix':
      return name.endsWith(target.suffix) && name.length > target.suffix.length
    case 'network':
      return false
  }
}

function matchesAddress({ target }: NetworkRule, address: string): boolean {
  if (target.kind !== 'network' || isIP(address) !== target.version || address.includes('%')) return false
  return classOf(address) !== 'embedded' && target.list.check(address, target.version === 4 ? 'ipv4' : 'ipv6')
}

const matchesPort = ({ port }: NetworkRule, asked: number): boolean =>
  port === undefined ? usualPorts.includes(asked) : port === 'any' || port === asked

function matchesRequest({ methods, path }: NetworkRule, request: RequestLine | undefined): boolean {
  if (methods === undefined && path === undefined) return true
  if (request === undefined) return false
  return (methods?.includes(request.method) ?? true) && (path === undefined || beginsWith(request.path, path))
}

/** BOUNDARY: a path in which a server could read another one, with dots or encoded characters, matches no prefix. */
const beginsWith = (path: string, prefix: string): boolean =>
  path.startsWith(prefix) && !/%|\\|\/\/|\/\.\.?(?:[/?#]|$)/.test(path.split(/[?#]/, 1)[0] ?? '')
