import { chmodSync, chownSync, mkdirSync, rmSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { dirname } from 'node:path'
import { peerCredentials } from '../kernel/peer-credentials.ts'
import type { Log } from '../observe/log.ts'
import { FrontConnection } from './front-connection.ts'
import type { Runs } from './runs/runs.ts'
import type { OpenStorage } from './storage/storage.ts'

export interface RunnerServerSettings {
  /** Where the socket is made; its directory is made with it and is for its two ends alone. */
  socketPath: string
  /** The only user, besides root itself, that may connect. */
  frontUid: number
  frontGid: number
  /** How long the runs of a front that is gone go on, unless another front attaches, in milliseconds. */
  graceMs: number
  runnerId: string
  epoch: number
}

/** A front reconnects and a new one may overlap with the old; more than these is a fault. */
const maxConnections = 8

/** The runner's door: fronts of this instance, and nobody else. */
export class RunnerServer {
  readonly #settings: RunnerServerSettings
  readonly #runs: Runs
  readonly #storage: OpenStorage | undefined
  readonly #log: Log
  readonly #server: Server
  readonly #connections = new Set<FrontConnection>()
  readonly #graces = new Set<NodeJS.Timeout>()
  #trouble: string | undefined

  /** @param storage absent where there is none. */
  constructor(settings: RunnerServerSettings, runs: Runs, storage: OpenStorage | undefined, log: Log) {
    this.#settings = settings
    this.#runs = runs
    this.#storage = storage
    this.#log = log
    this.#server = createServer((socket) => this.#accept(socket))
  }

  /** Makes the socket and listens. @throws where the directory or socket cannot be made as it must be. */
  async listen(): Promise<void> {
    const { socketPath, frontGid } = this.#settings
    const directory = dirname(socketPath)
    rmSync(directory, { recursive: true, force: true })
    mkdirSync(directory, { mode: 0o700 })
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject)
      this.#server.listen(socketPath, resolve)
    })
    chownSync(socketPath, 0, frontGid)
    chmodSync(socketPath, 0o660)
    chownSync(directory, 0, frontGid)
    chmodSync(directory, 0o710)
  }

  /** Tells every front whether runs can start. @param trouble why not, or `undefined`. */
  announce(trouble: string | undefined): void {
    if (trouble === this.#trouble) return
    this.#trouble = trouble
    for (const connection of this.#connections) connection.announce(trouble)
  }

  async close(): Promise<void> {
    for (const grace of this.#graces) clearTimeout(grace)
    const closed = new Promise((resolve) => this.#server.close(resolve))
    for (const connection of this.#connections) connection.close()
    await closed
  }

  #accept(socket: Socket): void {
    const peer = peerCredentials(socket)
    if (peer === undefined || (peer.uid !== 0 && peer.uid !== this.#settings.frontUid)) {
      this.#log.error({ peer }, 'refused a connection that is not from the front')
      socket.destroy()
      return
    }
    if (this.#connections.size >= maxConnections) {
      this.#log.error({ connections: this.#connections.size }, 'refused one connection too many')
      socket.destroy()
      return
    }
    const { runnerId, epoch } = this.#settings
    const identity = { runnerId, epoch }
    const connection = new FrontConnection(socket, this.#runs, this.#storage, identity, this.#trouble, this.#log)
    this.#connections.add(connection)
    socket.once('close', () => {
      this.#connections.delete(connection)
      this.#endAbandoned(connection)
    })
  }

  /** What nobody waits for any more ends after the grace time; detached runs go on. */
  #endAbandoned(gone: FrontConnection): void {
    const abandoned = [...gone.started]
    if (abandoned.length === 0) return
    const grace = setTimeout(() => {
      this.#graces.delete(grace)
      const attached = new Set([...this.#connections].flatMap((connection) => [...connection.attachedRuns()]))
      for (const { runId, detached, state } of this.#runs.list()) {
        if (!abandoned.includes(runId) || detached || state === 'ended' || attached.has(runId)) continue
        this.#runs.cancel(runId, 'cancelled')
      }
    }, this.#settings.graceMs)
    this.#graces.add(grace)
  }
}
