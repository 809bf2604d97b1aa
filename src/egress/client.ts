import { type ChildProcess, type SendHandle, spawn } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { closeSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { LRUCache } from 'lru-cache'
import type {
  JailNetwork,
  NetworkCounts,
  NetworkKind,
  NetworkOwner,
  NetworkTotals,
  NetworkUse,
} from '../base/network.ts'
import { type PackageCacheSettings, type PackageCacheTotals, packageCacheHost } from '../base/package-cache.ts'
import { kernel } from '../kernel/kernel.ts'
import type { Log } from '../observe/log.ts'
import { machineIndexes } from './machine-indexes.ts'
import { machineRoots } from './machine-roots.ts'
import {
  type Authority,
  type BrokerNetwork,
  type FromBroker,
  proxyPort,
  type SocketKind,
  type ToBroker,
} from './protocol.ts'

/** Names are resolved on threads, each of which waits for its answer. */
const environment = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  LANG: 'C.UTF-8',
  // Half of them resolve names.
  UV_THREADPOOL_SIZE: '64',
}

/** A process that starts, or opens a jail, in more time is replaced. */
const withinMs = 15_000
const endWithinMs = 2_000

/** The network of one jail, from before its code starts until nothing of it lives. */
export interface OpenNetwork {
  /**
   * Opens the network of a jail. @param namespace descriptor of its network namespace, which this closes in the end.
   * @throws Error when it cannot be opened: the code of the jail must not start then.
   */
  open(namespace: number): Promise<void>
  /** Applies another policy to new connections, and ends open ones that it does not allow. */
  change(network: JailNetwork, trust?: Trust): void
  /** What was transferred so far; undefined when the broker does not answer. Never rejects. */
  counts(): Promise<NetworkCounts | undefined>
  /** Ends its connections. Never rejects. @returns what they were. */
  close(): Promise<NetworkUse[]>
}

/** What jails with secrets trust: an authority of their own beside those of the machine. */
export interface Trust {
  authority: Authority
  /** All of them, in PEM. */
  certificates: string
}

/** Of one runner: profiles and sandboxes with secrets that were used last. */
const trustsMax = 1024

/** The sockets of a jail that is open, kept to open them again. */
interface Opened {
  namespace: number
  owner: NetworkOwner
  network: JailNetwork
  authority: Authority | undefined
  link: number | undefined
}

type Answer = (message: FromBroker | undefined) => void

/**
 * The broker as the runner sees it: a process that is started with the first jail that has a network, and again when it
 * died. Jails that were open then get new sockets; their connections have ended.
 */
export class Egress {
  readonly #command: readonly string[]
  readonly #log: Log
  readonly #packages: PackageCacheSettings | undefined
  readonly #jails = new Map<number, Opened>()
  readonly #waiting = new Map<string, Answer>()
  /** Questions that were asked already. */
  readonly #counting = new Map<string, Promise<FromBroker | undefined>>()
  #broker: Promise<ChildProcess> | undefined
  readonly #trusts = new LRUCache<string, Promise<Trust>>({ max: trustsMax })
  #indexes: Promise<readonly string[]> | undefined
  #count = 0
  /** Of the broker that runs, some hundred milliseconds old; absent before the first connection. */
  totals: Record<NetworkKind, NetworkTotals> | undefined
  /** Like `totals`; absent without a package cache. */
  packageTotals: PackageCacheTotals | undefined
  #isClosing = false

  /** @param command starts the broker, without privileges. @param packages of its package cache. */
  constructor(command: readonly string[], log: Log, packages?: PackageCacheSettings) {
    this.#packages = packages
    this.#command = command
    this.#log = log
  }

  /** The network for a jail that will be made. */
  jail(network: JailNetwork, owner: NetworkOwner, trust?: Trust): OpenNetwork {
    const number = ++this.#count
    let latest = network
    return {
      open: async (namespace) => {
        this.#jails.set(number, { namespace, owner, network: latest, authority: trust?.authority, link: undefined })
        await this.#open(number)
      },
      change: (changed, newTrust) => {
        latest = changed
        this.#change(number, changed, newTrust)
      },
      counts: () => this.#counts(number),
      close: () => this.#close(number),
    }
  }

  /**
   * Returns what jails with secrets trust, the same for the same owner.
   * @param owner a sandbox, or a key with the revision of its profile.
   * @throws Error when the broker makes no authority.
   */
  async trust(owner: string): Promise<Trust> {
    const known = this.#trusts.get(owner)
    if (known !== undefined) return known
    const made = this.#makeTrust()
    this.#trusts.set(owner, made)
    made.catch(() => this.#trusts.delete(owner))
    return made
  }

  async #makeTrust(): Promise<Trust> {
    this.#broker ??= this.#start()
    const broker = await this.#broker
    const number = ++this.#count
    const answer = this.#answer(`authority ${number}`)
    this.#send(broker, { type: 'authority', jail: number })
    const message = await answer
    if (message?.type !== 'authority') throw new Error('the broker made no certificate authority')
    const { authority } = message
    return { authority, certificates: `${machineRoots().join('\n')}\n${authority.certificate}` }
  }

  /** Ends the broker. */
  async close(): Promise<void> {
    this.#isClosing = true
    const broker = await this.#broker?.catch(() => undefined)
    if (broker === undefined || broker.exitCode !== null) return
    const exited = once(broker, 'exit')
    broker.disconnect()
    const timer = setTimeout(() => broker.kill('SIGKILL'), endWithinMs)
    await exited
    clearTimeout(timer)
  }

  async #open(number: number): Promise<void> {
    const opened = this.#jails.get(number)
    if (opened === undefined) return
    this.#broker ??= this.#start()
    const broker = await this.#broker
    const [four = -1, six = -1, dns = -1, link = -1] = await kernel.openJailNetwork(opened.namespace, proxyPort)
    this.#closeLink(opened)
    opened.link = link
    if (!this.#jails.has(number)) return void this.#closeLink(opened)
    for (const stream of [four, six])
      if (stream >= 0) await this.#pass(broker, number, 'stream', await listening(stream))
    await this.#pass(broker, number, 'dns', await bound(dns))
    const network = { ...(await this.#resolvedOf(opened)), authority: opened.authority }
    const answer = this.#answer(`opened ${number}`)
    this.#send(broker, { type: 'open', jail: number, network, owner: opened.owner })
    if ((await answer) !== undefined) return
    // One that says nothing is replaced, since it serves no other jail either.
    broker.kill('SIGKILL')
    throw new Error('the broker did not open the network of a jail')
  }

  /** This process accepts nothing meanwhile: no code runs in the jail yet. */
  async #pass(broker: ChildProcess, jail: number, kind: SocketKind, socket: Passed): Promise<void> {
    try {
      await new Promise<void>((resolve, reject) => {
        broker.send({ type: 'socket', jail, kind } satisfies ToBroker, socket as SendHandle, (error) =>
          error ? reject(error) : resolve(),
        )
      })
    } finally {
      socket.close()
    }
  }

  #change(number: number, network: JailNetwork, trust: Trust | undefined): void {
    const opened = this.#jails.get(number)
    if (opened === undefined) return
    opened.network = network
    opened.authority ??= trust?.authority
    const change = async () => {
      const resolved = await this.#resolved(network)
      const broker = await this.#broker
      if (broker)
        this.#send(broker, { type: 'change', jail: number, network: { ...resolved, authority: opened.authority } })
    }
    change().catch((error: unknown) => this.#log.error({ err: error }, 'policy of a jail could not be changed'))
  }

  /** Of the latest policy, although it may change meanwhile. */
  async #resolvedOf(opened: Opened): Promise<BrokerNetwork> {
    for (;;) {
      const { network } = opened
      const resolved = await this.#resolved(network)
      if (network === opened.network) return resolved
    }
  }

  /** Names the package indexes of the machine, where the profile names none. */
  async #resolved({ certificates: _inJail, ...network }: JailNetwork): Promise<BrokerNetwork> {
    if (network.policy !== 'packages' || network.rules.length > 0) return network
    this.#indexes ??= machineIndexes()
    return { ...network, rules: [...(await this.#indexes), ...(this.#packages ? [packageCacheHost] : [])] }
  }

  async #counts(number: number): Promise<NetworkCounts | undefined> {
    const broker = await this.#broker?.catch(() => undefined)
    if (broker?.connected !== true || !this.#jails.has(number)) return undefined
    const key = `counts ${number}`
    const asked = this.#counting.get(key) ?? this.#answer(key)
    if (!this.#counting.has(key)) {
      this.#counting.set(key, asked)
      this.#send(broker, { type: 'counts', jail: number })
    }
    const message = await asked
    this.#counting.delete(key)
    return message?.type === 'counts' ? message.counts : undefined
  }

  async #close(number: number): Promise<NetworkUse[]> {
    const opened = this.#jails.get(number)
    if (opened === undefined) return []
    this.#jails.delete(number)
    this.#closeLink(opened)
    closeSync(opened.namespace)
    const broker = await this.#broker?.catch(() => undefined)
    if (broker?.connected !== true) return []
    const answer = this.#answer(`closed ${number}`)
    this.#send(broker, { type: 'close', jail: number })
    const message = await answer
    return message?.type === 'closed' ? message.uses : []
  }

  #closeLink(opened: Opened): void {
    if (opened.link !== undefined) closeSync(opened.link)
    opened.link = undefined
  }

  #send(broker: ChildProcess, message: ToBroker): void {
    if (broker.connected) broker.send(message)
  }

  /** Resolves without a message when the broker ends, or says nothing in time. */
  #answer(key: string): Promise<FromBroker | undefined> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#settle(key, undefined), withinMs)
      this.#waiting.set(key, (message) => {
        clearTimeout(timer)
        resolve(message)
      })
    })
  }

  #settle(key: string, message: FromBroker | undefined): void {
    const answer = this.#waiting.get(key)
    this.#waiting.delete(key)
    answer?.(message)
  }

  async #start(): Promise<ChildProcess> {
    const [program = '', ...args] = this.#command
    const broker = spawn(program, args, {
      detached: true,
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      env: environment,
    })
    broker.on('message', (message: FromBroker) => {
      if (message.type === 'totals') this.totals = message.totals
      else if (message.type === 'package_totals') this.packageTotals = message.totals
      else this.#settle(message.type === 'ready' ? 'ready' : `${message.type} ${message.jail}`, message)
    })
    broker.on('error', (error) => this.#log.error({ err: error }, 'broker could not be used'))
    broker.once('exit', (code, signal) => this.#lost(broker, code ?? signal))
    const ready = await this.#answer('ready')
    if (ready !== undefined) {
      if (this.#packages) this.#send(broker, { type: 'packages', settings: this.#packages })
      return broker
    }
    broker.kill('SIGKILL')
    this.#broker = undefined
    throw new Error('the broker did not start')
  }

  #lost(broker: ChildProcess, how: number | string | null): void {
    this.#broker = undefined
    for (const key of [...this.#waiting.keys()]) this.#settle(key, undefined)
    if (this.#isClosing) return
    this.#log.error({ pid: broker.pid, how }, 'broker died')
    for (const number of this.#jails.keys()) {
      this.#open(number).catch((error: unknown) => this.#log.error({ err: error }, 'network of a jail was lost'))
    }
  }
}

/** What can be passed to another process. */
type Passed = Server | ReturnType<typeof createSocket>

async function listening(fd: number): Promise<Server> {
  // Code runs already in a jail whose broker died: what it connects meanwhile is not for this process.
  const server = createServer((socket) => socket.resetAndDestroy())
  const ready = once(server, 'listening')
  server.listen({ fd })
  await ready
  return server
}

async function bound(fd: number): Promise<Passed> {
  const socket = createSocket('udp4')
  const ready = once(socket, 'listening') // It is emitted at once.
  socket.bind({ fd })
  await ready
  return socket
}
