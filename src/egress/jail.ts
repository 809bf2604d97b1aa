import { Agent } from 'node:http'
import { connect as connectTo, isIP, type LookupFunction, type Socket } from 'node:net'
import { type NetworkCounts, type NetworkUse, plainName } from '../base/network.ts'
import { packageCacheHost } from '../base/package-cache.ts'
import { type JailAccounts, ownAccounts } from './accounts.ts'
import { Decision, NetworkRefused, type RequestLine, type Target, where } from './decision.ts'
import { MappedNames } from './mapped-names.ts'
import { Meter } from './meter.ts'
import type { PackageCache } from './packages/package-cache.ts'
import type { Authority, BrokerNetwork } from './protocol.ts'
import { pump } from './pump.ts'
import type { Leaves } from './secrets/authority.ts'
import { type FilledRequest, JailSecrets, type WrittenRequest } from './secrets/jail-secrets.ts'
import { secure } from './secrets/opened-tls.ts'
import type { Surroundings } from './surroundings.ts'

/** A server that does not answer within it is unreachable. */
const connectWithinMs = 15_000
/** How long a connection to a server of plain HTTP waits for another request of the same run. */
const keepAliveMs = 4_000
/** Of one run: a program that asks many servers in turn must not use up the descriptors of the broker. */
const idleMax = 64

/** A connection to the outside. */
export interface Outside {
  socket: Socket
  use: NetworkUse
}

/** The connections of one jail, under its policy and its limits. */
export class EgressJail {
  readonly names = new MappedNames()
  /** Keeps connections for requests of plain HTTP. */
  readonly agent: Agent
  /** The same over TLS, to servers that receive secrets. */
  readonly tlsAgent: Agent
  readonly #surroundings: Surroundings
  readonly orgId: string
  readonly #meter: Meter
  /** Each with the destination on which was decided. */
  readonly #open = new Map<Socket, Target>()
  readonly #inside = new Set<Socket>()
  /** Connections of programs within which TLS was opened. */
  readonly #opened = new Map<Socket, Target>()
  #decision: Decision
  #secrets: JailSecrets
  #authority: Authority | undefined
  #leaves: Promise<Leaves> | undefined
  #isClosed = false

  /** @param orgId whose lookups of names wait for each other. */
  constructor(network: BrokerNetwork, surroundings: Surroundings, accounts: JailAccounts = ownAccounts(), orgId = '') {
    this.#surroundings = surroundings
    this.orgId = orgId
    this.#meter = new Meter(network.limits, accounts)
    this.#decision = new Decision(network, surroundings.isOwn)
    this.#secrets = new JailSecrets(network.secrets)
    this.#authority = network.authority
    this.agent = this.#newAgent(false)
    this.tlsAgent = this.#newAgent(true)
  }

  get decision(): Decision {
    return this.#decision
  }

  get secrets(): JailSecrets {
    return this.#secrets
  }

  /** Certificates that the jail trusts. @throws Error when it has no authority. */
  leaves(): Promise<Leaves> {
    const authority = this.#authority
    if (authority === undefined) throw new Error('the jail has no certificate authority')
    // Only here: reading the library takes longer than opening a jail.
    this.#leaves ??= import('./secrets/authority.ts').then(({ Leaves }) => new Leaves(authority))
    return this.#leaves
  }

  /** The package cache, if a destination is one. */
  packagesAt({ host, port }: Target): Promise<PackageCache> | undefined {
    return port === 80 && plainName(host) === packageCacheHost ? this.#surroundings.packages : undefined
  }

  /** Whether requests to a destination must be read, also within TLS. */
  readsRequests(target: Target): boolean {
    if (this.#decision.dependsOnRequests(target)) return true
    return (this.packagesAt(target) !== undefined || this.#secrets.opens(target)) && this.#decision.allowsTarget(target)
  }

  /** Puts secrets into a request. @throws NetworkRefused `refused_secret`; the attempt is counted. */
  fill(request: WrittenRequest): FilledRequest {
    if (this.#secrets.isEmpty) return { path: request.path, headers: [...request.headers], echoes: [] }
    return this.#counted(request.target, () => this.#secrets.fill(request))
  }

  get counts(): NetworkCounts {
    return this.#meter.counts
  }

  get uses(): NetworkUse[] {
    return this.#meter.uses
  }

  /** Applies another policy to new connections, and ends those that it does not allow. */
  change(network: BrokerNetwork): void {
    const before = this.#secrets
    this.#decision = new Decision(network, this.#surroundings.isOwn)
    this.#secrets = new JailSecrets(network.secrets)
    if (network.authority !== undefined && this.#authority === undefined) this.#authority = network.authority
    this.#meter.change(network.limits)
    for (const [inside, target] of this.#opened)
      if (!this.#decision.allowsTarget(target) && !this.#decision.dependsOnRequests(target)) inside.destroy()
      else if (before.opens(target) !== this.#secrets.opens(target)) inside.destroy()
    for (const [socket, target] of this.#open) {
      try {
        this.#decision.requireTarget(target)
        this.#decision.requireAddress(plainAddress(socket.remoteAddress ?? ''), target)
      } catch {
        socket.destroy()
      }
    }
  }

  /** Ends every connection. */
  close(): void {
    this.#isClosed = true
    this.agent.destroy()
    this.tlsAgent.destroy()
    for (const socket of [...this.#open.keys(), ...this.#inside]) socket.destroy()
  }

  /** Owns a connection of a program until it ends. @returns false when there are too many: it was destroyed. */
  accept(socket: Socket): boolean {
    socket.on('error', () => socket.destroy())
    try {
      this.#meter.enter()
    } catch (error) {
      if (error instanceof NetworkRefused) this.#meter.record({ host: '*', port: 0 }, error.verdict)
      socket.resetAndDestroy()
      return false
    }
    this.#inside.add(socket)
    socket.once('close', () => {
      this.#inside.delete(socket)
      this.#meter.leave()
    })
    return true
  }

  /** Whether the name server of the jail may look for a name. A placeholder in it is counted. */
  allowsQuery(name: string): boolean {
    try {
      this.#counted({ host: name, port: 53 }, () => this.#secrets.requireName(name))
    } catch {
      return false
    }
    return this.#decision.allowsName(name)
  }

  /** Resolves a name that the policy allows; that of the package cache has no address. @throws NetworkRefused. */
  async resolve(name: string): Promise<readonly string[]> {
    if (!this.#decision.allowsName(name)) throw new NetworkRefused('refused_destination', `${name} is not listed`)
    if (this.packagesAt({ host: name, port: 80 })) return []
    return this.#surroundings.resolver.resolve(plainName(name), this.orgId)
  }

  /** Counts a connection that did not come about. */
  refuse(target: Target, { verdict }: NetworkRefused): void {
    this.#meter.record(target, verdict)
  }

  /** Decides on a request that an open connection may carry. @throws NetworkRefused; the attempt is counted. */
  requireRequest(target: Target, request: RequestLine): void {
    this.#counted(target, () => this.#decision.requireTarget(target, request))
  }

  #counted<T>(target: Target, decide: () => T): T {
    try {
      return decide()
    } catch (error) {
      if (error instanceof NetworkRefused) this.refuse(target, error)
      throw error
    }
  }

  /** The refusal of a placeholder, or of a secret, where it cannot be replaced. */
  secretRefusal(target: Target, how: string): NetworkRefused {
    return this.#secrets.refusalOf(target, how)
  }

  /** Remembers a connection within which TLS was opened, to end it when that is no longer allowed. */
  hasOpened(inside: Socket, target: Target): void {
    this.#opened.set(inside, target)
    inside.once('close', () => this.#opened.delete(inside))
  }

  /** Counts a request that the broker answers itself. @returns a function for its end: a change of the policy may end it before. */
  serves(inside: Socket, target: Target): () => void {
    this.#meter.record(target, 'allowed')
    this.#opened.set(inside, target)
    return () => void this.#opened.delete(inside)
  }

  /** Where the bytes of requests to a destination are counted. */
  useOf(target: Target): NetworkUse {
    return this.#meter.useOf(target)
  }

  /** @throws NetworkRefused `refused_limit` when the bytes of the run are used up. */
  count(use: NetworkUse, bytes: number, isSent: boolean): number {
    return this.#meter.count(use, bytes, isSent)
  }

  /**
   * Connects to a destination, at an address that was checked.
   * @param request where it can be read.
   * @throws NetworkRefused; the attempt is counted.
   */
  async connect(target: Target, request?: RequestLine): Promise<Outside> {
    try {
      this.#secrets.requireName(target.host)
      this.#decision.requireTarget(target, request)
      const addresses = await this.#addressesOf(target)
      if (this.#open.size > this.#meter.open + idleMax) this.#endIdle()
      const socket = await this.#connectTo(target, addresses)
      if (this.#isClosed) {
        socket.destroy()
        throw new NetworkRefused('unreachable', 'the run has ended')
      }
      this.#open.set(socket, target)
      socket.once('close', () => this.#open.delete(socket))
      return { socket, use: this.#meter.record(target, 'allowed') }
    } catch (error) {
      if (error instanceof NetworkRefused) this.refuse(target, error)
      throw error
    }
  }

  /** Connections that wait for another request. */
  #endIdle(): void {
    for (const { freeSockets } of [this.agent, this.tlsAgent])
      for (const socket of Object.values(freeSockets).flat()) socket?.destroy()
  }

  async #addressesOf(target: Target): Promise<readonly string[]> {
    const { host, port } = target
    const name = plainName(host)
    let all: readonly string[] = [host]
    if (isIP(host) === 0) {
      all = await this.#surroundings.resolver.resolve(name, this.orgId).catch(() => {
        throw new NetworkRefused('unresolved', `the name ${name} cannot be resolved`)
      })
    }
    const allowed = all.filter((address) => this.#decision.allowsAddress(address, port))
    if (allowed.length === 0) this.#decision.requireAddress(all[0] ?? host, target)
    return allowed
  }

  #connectTo({ host, port }: Target, addresses: readonly string[]): Promise<Socket> {
    const pinned: LookupFunction = (_host, options, done) => {
      const found = addresses.map((address) => ({ address, family: isIP(address) }))
      if (options.all === true) done(null, found)
      else done(null, found[0]!.address, found[0]!.family)
    }
    return new Promise((resolve, reject) => {
      const socket = connectTo({ host: 'pinned', port, lookup: pinned, autoSelectFamily: true, allowHalfOpen: true })
      const timer = setTimeout(() => socket.destroy(new Error('no answer in time')), connectWithinMs)
      socket.once('connect', () => {
        clearTimeout(timer)
        socket.removeAllListeners('error')
        socket.on('error', () => socket.destroy())
        socket.setNoDelay(true)
        resolve(socket)
      })
      socket.once('error', (error: NodeJS.ErrnoException) => {
        clearTimeout(timer)
        const reason = error.code === 'ECONNREFUSED' ? 'refused the connection' : 'cannot be reached'
        reject(new NetworkRefused('unreachable', `${where(host, port)} ${reason}`))
      })
    })
  }

  /** Passes bytes both ways until both are at their ends, or one fails. @param first what the program has sent already. */
  relay(inside: Socket, { socket: outside, use }: Outside, first: Buffer): void {
    const finder = this.#secrets.isEmpty ? undefined : this.#secrets.finder()
    const count = (bytes: number, piece: Buffer) => {
      if (finder?.find(piece)) {
        const { host, port } = use
        this.#counted({ host, port }, () => {
          throw this.secretRefusal({ host, port }, 'in a connection')
        })
      }
      return this.#meter.count(use, bytes, true)
    }
    if (first.length > 0) {
      try {
        count(first.length, first)
      } catch {
        inside.destroy()
        return void outside.destroy()
      }
      outside.write(first)
    }
    pump(inside, outside, count)
  }

  /**
   * Joins the ends of two connections, and passes on what the server sends; `relay` does the other direction.
   * @returns a function that parts them, so that the connection of the program outlives the other one.
   */
  listen({ socket: outside, use }: Outside, inside: Socket): () => void {
    const end = () => endAfter(inside)
    inside.once('close', () => endAfter(outside))
    outside.once('close', end)
    pump(outside, inside, (bytes) => this.#meter.count(use, bytes, false))
    return () => void outside.off('close', end)
  }

  #newAgent(isTls: boolean): Agent {
    const agent = new Agent({ keepAlive: true, timeout: keepAliveMs, maxFreeSockets: 16 })
    // As the documentation of Agent has it: with the socket, or later through the callback.
    agent.createConnection = (options, done) => {
      const { host, port, requestLine } = options as { host: string; port: number; requestLine: RequestLine }
      this.connect({ host, port: Number(port) }, requestLine).then(
        async ({ socket }) => {
          try {
            done?.(null, isTls ? await secure(socket, { host, port: Number(port) }, this.#surroundings.roots) : socket)
          } catch (error) {
            done?.(error as Error, undefined as never)
          }
        },
        (error: Error) => done?.(error, undefined as never),
      )
      return undefined
    }
    return agent
  }
}

/** Closes a socket after its peer was lost, unless it is still sending buffered data. */
function endAfter(socket: Socket): void {
  if (socket.destroyed) return
  if (socket.writableEnded) socket.once('finish', () => socket.destroy())
  else socket.destroy()
  if (socket.writableFinished) socket.destroy()
}

/** As it was checked: sockets of both families show IPv4 in IPv6. */
export const plainAddress = (address: string): string => address.replace(/^::ffff:(?=\d+\.)/, '')
