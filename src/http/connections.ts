import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Server as TlsServer } from 'node:tls'
import { monotonicMs } from '../base/clock.ts'
import { descriptorLimit } from '../base/descriptor-limit.ts'
import { Refusal } from '../base/errors.ts'

/** Unread body that is dropped after a response to keep its connection usable: more than any JSON body has by default. */
export const drainMaxBytes = 8 * 1024 * 1024
/** Longest time for dropping it. */
const drainMs = 5_000
const drainCheckMs = 100
const checkEveryMs = 5_000
/** A connection that is refused, but whose client does not send its request, is closed after this time. */
const excessMs = 5_000
/** Connections above the limit that are still answered with 503; the kernel closes further ones. */
const excessMax = 64
/** Descriptors for the database, the runner, deliveries and log files. */
const descriptorsReserved = 256

export interface ConnectionLimits {
  /** Open connections; the limit of the process for descriptors lowers it. */
  max: number
  /** For a whole request, from the end of its headers on. */
  requestTimeoutMs: number
}

interface Connection {
  /** Requests whose response has not ended; more than one where the client pipelines. */
  active: number
  /** The latest request: only its body can still be arriving. */
  latest?: { request: IncomingMessage; response: ServerResponse; sinceMs: number; isExempt: boolean }
  isExcess: boolean
  isClosing: boolean
}

/**
 * Watches the connections of a server: bounds their number, closes those whose request takes too long to arrive, and
 * drops the rest of a body that was answered before it had arrived. Node has one request timeout for the whole server,
 * but an upload may take longer, and it leaves a connection unreadable whose body is not read to its end.
 */
export class Connections {
  readonly #limits: ConnectionLimits
  readonly #connections = new Map<Socket, Connection>()
  /** Connections without an active request, least recently used first. */
  readonly #idle = new Set<Socket>()
  readonly #timer: NodeJS.Timeout

  /** @param server that is not listening yet. */
  constructor(server: Server, limits: ConnectionLimits, everyMs = checkEveryMs) {
    this.#limits = { ...limits, max: Math.min(limits.max, Math.max(descriptorLimit() - descriptorsReserved, 16)) }
    server.maxConnections = this.#limits.max + excessMax
    // Requests over TLS arrive on the decrypted socket.
    server.on(server instanceof TlsServer ? 'secureConnection' : 'connection', (socket: Socket) => this.#add(socket))
    this.#timer = setInterval(() => this.#check(), everyMs).unref()
  }

  get size(): number {
    return this.#connections.size
  }

  /**
   * Registers a request whose headers have arrived.
   * @param isExempt whether its body may take longer than the timeout.
   * @returns the refusal where the connection is one too many.
   */
  begin(request: IncomingMessage, response: ServerResponse, isExempt: boolean): Refusal | undefined {
    const { socket } = request
    const connection = this.#connections.get(socket)
    if (connection === undefined) return undefined
    this.#idle.delete(socket)
    connection.active += 1
    connection.latest = { request, response, sinceMs: monotonicMs(), isExempt }
    return connection.isExcess ? new Refusal('connections_full') : undefined
  }

  /** Registers that the response of a request has ended. What has not arrived of its body is read and dropped. */
  end(request: IncomingMessage): void {
    const { socket } = request
    const connection = this.#connections.get(socket)
    if (connection === undefined) return
    connection.active -= 1
    if (!request.complete) this.#drain(socket, request)
    else if (connection.active === 0) this.#idle.add(socket)
  }

  /** Registers that a connection has changed its protocol: it is in use until it closes. */
  upgraded(socket: Socket): void {
    this.#idle.delete(socket)
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #add(socket: Socket): void {
    const connection: Connection = { active: 0, isExcess: false, isClosing: false }
    this.#connections.set(socket, connection)
    socket.once('close', () => {
      this.#connections.delete(socket)
      this.#idle.delete(socket)
    })
    this.#lingerOnClose(socket, connection)
    if (this.#connections.size > this.#limits.max) this.#makeRoom(socket, connection)
    this.#idle.add(socket)
  }

  /** Closes the connection that is idle longest, which every client expects of a server; with none, refuses the new one. */
  #makeRoom(socket: Socket, connection: Connection): void {
    for (const idle of this.#idle) {
      if (this.#connections.get(idle)?.isExcess) continue
      idle.destroy()
      return
    }
    connection.isExcess = true
    setTimeout(() => socket.destroy(), excessMs).unref()
  }

  /**
   * Node closes a connection right after a response with `Connection: close`. With a part of the request unread, the
   * kernel then resets the connection, and the client can lose the response. Such a connection is half closed instead,
   * and closed when the rest has been dropped.
   */
  #lingerOnClose(socket: Socket, connection: Connection): void {
    const destroySoon = socket.destroySoon.bind(socket)
    socket.destroySoon = () => {
      if (connection.latest === undefined || connection.latest.request.complete) return destroySoon()
      connection.isClosing = true
      socket.end()
    }
  }

  #drain(socket: Socket, request: IncomingMessage): void {
    // A destroyed request cannot be read any further.
    if (request.destroyed || socket.destroyed) return void socket.destroySoon()
    const endBytes = socket.bytesRead + drainMaxBytes
    const endMs = monotonicMs() + drainMs
    const timer = setInterval(() => {
      if (socket.bytesRead > endBytes || monotonicMs() > endMs) socket.destroy()
    }, drainCheckMs).unref()
    const stop = () => clearInterval(timer)
    socket.once('close', stop)
    request.once('end', () => {
      stop()
      socket.off('close', stop)
      const connection = this.#connections.get(socket)
      if (connection?.isClosing) socket.destroySoon()
      else if (connection?.active === 0) this.#idle.add(socket)
    })
    request.resume()
  }

  #check(): void {
    const startedBeforeMs = monotonicMs() - this.#limits.requestTimeoutMs
    for (const [socket, { active, latest }] of this.#connections) {
      if (latest === undefined || latest.isExempt || latest.request.complete || latest.sinceMs > startedBeforeMs)
        continue
      // A status line inside another response would corrupt it.
      if (active === 1 && !latest.response.headersSent)
        socket.end('HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
      socket.destroySoon()
      setTimeout(() => socket.destroy(), drainMs).unref()
    }
  }
}
