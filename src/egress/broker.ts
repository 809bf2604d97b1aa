import type { Socket as DatagramSocket } from 'node:dgram'
import type { Server } from 'node:net'
import { descriptorLimit } from '../base/descriptor-limit.ts'
import type { NetworkOwner, SharedNetworkLimits } from '../base/network.ts'
import type { Log } from '../observe/log.ts'
import { Accounts } from './accounts.ts'
import { answerQuery } from './dns.ts'
import { EgressJail } from './jail.ts'
import { JailListener } from './listener.ts'
import { ownAddresses } from './own-addresses.ts'
import type { PackageCache } from './packages/package-cache.ts'
import type { BrokerNetwork, FromBroker, SocketKind, ToBroker } from './protocol.ts'
import { Resolver } from './resolver.ts'
import type { Surroundings } from './surroundings.ts'

/** Queries of one jail that are answered at the same time; further ones are dropped, and their programs repeat them. */
const queriesMax = 64

const totalsEveryMs = 500
/** Descriptors for jails, lookups and log. A connection needs two: one in the jail, one outside. */
const descriptorsReserved = 512

/** The sockets of one jail, and what is served on them. */
interface Served {
  sockets: { kind: SocketKind; handle: Server | DatagramSocket }[]
  owner: NetworkOwner | undefined
  jail: EgressJail | undefined
  listener: JailListener | undefined
}

/** The channel to the runner. */
export interface RunnerChannel {
  send(message: FromBroker): void
}

/**
 * Connects jails to the outside. It runs in a process of its own, without privileges: it reads what hostile code sends, and
 * holds no socket but those of the jails and those that it opened for them.
 */
export class Broker {
  readonly #channel: RunnerChannel
  readonly #log: Log
  readonly #surroundings: Surroundings
  readonly #accounts: Accounts
  #sentTotals = ''
  #sentPackageTotals = ''
  #packages: PackageCache | undefined
  readonly #served = new Map<number, Served>()

  /** @param roots authorities whose certificates of servers are accepted, in PEM. */
  constructor(channel: RunnerChannel, log: Log, roots: readonly string[], limits: SharedNetworkLimits) {
    this.#channel = channel
    this.#accounts = new Accounts(limits, Math.floor((descriptorLimit() - descriptorsReserved) / 2))
    setInterval(() => this.#sendTotals(), totalsEveryMs).unref()
    this.#surroundings = { resolver: new Resolver(), isOwn: ownAddresses(), roots }
    this.#log = log
  }

  /** @param handle of a `socket`. */
  async receive(message: ToBroker, handle: unknown): Promise<void> {
    switch (message.type) {
      case 'socket':
        this.#of(message.jail).sockets.push({ kind: message.kind, handle: handle as Server | DatagramSocket })
        return
      case 'open':
        await this.#open(message.jail, message.network, message.owner)
        this.#channel.send({ type: 'opened', jail: message.jail })
        return
      case 'packages': {
        const { settings } = message
        const packages = import('./packages/package-cache.ts').then(
          ({ PackageCache }) => new PackageCache(settings, this.#surroundings),
        )
        packages.then(
          (cache) => (this.#packages = cache),
          (error: unknown) => this.#log.error({ err: error }, 'package cache cannot be used'),
        )
        this.#surroundings.packages = packages
        return
      }
      case 'change':
        this.#served.get(message.jail)?.jail?.change(message.network)
        return
      case 'authority': {
        const { makeAuthority } = await import('./secrets/authority.ts')
        this.#channel.send({ type: 'authority', jail: message.jail, authority: await makeAuthority() })
        return
      }
      case 'counts': {
        const counts = this.#served.get(message.jail)?.jail?.counts ?? { uses: [], sentBytes: 0, receivedBytes: 0 }
        this.#channel.send({ type: 'counts', jail: message.jail, counts })
        return
      }
      case 'close':
        this.#channel.send({ type: 'closed', jail: message.jail, uses: this.#close(message.jail) })
        return
    }
  }

  #sendTotals(): void {
    this.#sendPackageTotals()
    const { totals } = this.#accounts
    const text = JSON.stringify(totals)
    if (text === this.#sentTotals) return
    this.#sentTotals = text
    this.#channel.send({ type: 'totals', totals })
  }

  #sendPackageTotals(): void {
    if (this.#packages === undefined) return
    const { totals } = this.#packages
    const text = JSON.stringify(totals)
    if (text === this.#sentPackageTotals) return
    this.#sentPackageTotals = text
    this.#channel.send({ type: 'package_totals', totals })
  }

  #of(jail: number): Served {
    const known = this.#served.get(jail)
    if (known !== undefined) return known
    const served: Served = { sockets: [], owner: undefined, jail: undefined, listener: undefined }
    this.#served.set(jail, served)
    return served
  }

  async #open(number: number, network: BrokerNetwork, owner: NetworkOwner): Promise<void> {
    const served = this.#of(number)
    const jail = new EgressJail(network, this.#surroundings, this.#accounts.open(owner), owner.orgId)
    served.owner = owner
    served.jail = jail
    served.listener = new JailListener(jail)
    for (const { kind, handle } of served.sockets) {
      if (kind === 'stream') await served.listener.listen(handle as Server)
      else this.#serveNames(jail, handle as DatagramSocket)
    }
  }

  #serveNames(jail: EgressJail, socket: DatagramSocket): void {
    let open = 0
    socket.on('error', (error) => this.#log.warn({ err: error }, 'name server of a jail failed'))
    socket.on('message', (query, { address, port }) => {
      if (open >= queriesMax) return
      open += 1
      void answerQuery(jail, query)
        .then((answer) => answer && socket.send(answer, port, address))
        .catch((error: unknown) => this.#log.warn({ err: error }, 'query of a jail failed'))
        .finally(() => (open -= 1))
    })
  }

  #close(number: number) {
    const served = this.#served.get(number)
    this.#served.delete(number)
    served?.listener?.close()
    served?.jail?.close()
    for (const { handle } of served?.sockets ?? []) handle.close()
    if (served?.owner) this.#accounts.close(served.owner)
    this.#sendTotals()
    return served?.jail?.uses ?? []
  }
}
