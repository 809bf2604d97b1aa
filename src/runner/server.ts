import { chmodSync, chownSync, mkdirSync, rmSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { dirname } from 'node:path'
import { peerCredentials } from '../kernel/peer-credentials.ts'
import type { Log } from '../observe/log.ts'
import { FrontConnection } from './front-connection.ts'
import type { RunnerReadiness } from './protocol/messages.ts'
import type { RunnerParts } from './runner-parts.ts'

export interface RunnerServerSettings {
  /** Path of the socket. Its directory is created with it, for these two processes only. */
  socketPath: string
  /** The only user, besides root itself, that may connect. */
  frontUid: number
  frontGid: number
  /** How long runs of a disconnected front continue unless another front attaches, in milliseconds. */
  graceMs: number
  runnerId: string
  epoch: number
}

/** A new front may overlap with the previous one; more connections than this are a fault. */
const maxConnections = 8

/** Accepts connections from the fronts of this instance, and from no other process. */
export class RunnerServer {
  readonly #settings: RunnerServerSettings
  readonly #parts: RunnerParts
  readonly #log: Log
  readonly #server: Server
  readonly #connections = new Set<FrontConnection>()
  readonly #graces = new Set<NodeJS.Timeout>()
  #trouble: string | undefined

  constructor(settings: RunnerServerSettings, parts: RunnerParts, log: Log) {
    this.#settings = settings
    this.#parts = parts
    this.#log = log
    this.#server = createServer((socket) => this.#accept(socket))
  }

  /** Creates the socket and listens. @throws system errors when the directory or socket cannot be created. */
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

  /** Reports to every front whether runs can start. @param trouble why not, or `undefined`. */
  announce(trouble: string | undefined): void {
    if (trouble === this.#trouble) return
    this.#trouble = trouble
    this.announceStorage()
  }

  /** Reports to every front whether threads can be created. */
  announceStorage(): void {
    for (const connection of this.#connections) connection.announce(this.#readiness)
  }

  get #readiness(): RunnerReadiness {
    const storage = this.#parts.storage?.watch.problem
    const ready = { ready: this.#trouble === undefined, reason: this.#trouble ?? '' }
    return { type: 'ready', ...ready, ...(storage !== undefined && { storage }) }
  }

  /** Sends every front what the images have now. */
  announceSoftware(): void {
    for (const connection of this.#connections) connection.announceSoftware()
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
      this.#log.error({ peer }, 'rejected connection: peer is not the front')
      socket.destroy()
      return
    }
    if (this.#connections.size >= maxConnections) {
      this.#log.error({ connections: this.#connections.size }, 'rejected connection: too many')
      socket.destroy()
      return
    }
    const { runnerId, epoch } = this.#settings
    const parts = { ...this.#parts, identity: { runnerId, epoch } }
    const connection = new FrontConnection(socket, parts, peer.uid === 0, this.#readiness, this.#log)
    this.#connections.add(connection)
    socket.once('close', () => {
      this.#connections.delete(connection)
      this.#endAbandoned(connection)
    })
  }

  /** Cancels the runs of a disconnected front after the grace time, except detached runs and those that another front attached to. */
  #endAbandoned(gone: FrontConnection): void {
    const abandoned = [...gone.started]
    if (abandoned.length === 0) return
    const grace = setTimeout(() => {
      this.#graces.delete(grace)
      const attached = new Set([...this.#connections].flatMap((connection) => [...connection.attachedRuns()]))
      for (const { runId, detached, state } of this.#parts.runs.list()) {
        if (!abandoned.includes(runId) || detached || state === 'ended' || attached.has(runId)) continue
        this.#parts.runs.cancel(runId, 'cancelled')
      }
    }, this.#settings.graceMs)
    this.#graces.add(grace)
  }
}
