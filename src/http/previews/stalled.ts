import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'

/** A client that reads nothing for one to two of these, although something waits for it, is gone. */
const checkEveryMs = 60_000

/**
 * What waits for slow clients takes a mebibyte here and four in the kernel, for each. So an organization can have some of
 * them, and of further ones those that read least are closed.
 */
const usualCrowd: CrowdLimits = { everyMs: 5_000, slowMax: 64, leastBytes: 64 * 1024 }

export interface CrowdLimits {
  everyMs: number
  /** Slow clients of one organization. */
  slowMax: number
  /** What a client reads within `everyMs` that is not slow. */
  leastBytes: number
}

interface Client {
  orgId: string
  /** Bytes that it had taken at the last check of each kind; -1 if nothing waited. */
  taken: { alone: number; crowd: number }
}

/** Closes connections whose client does not read what waits for it. */
export class StalledClients {
  readonly #clients = new Map<Socket, Client>()
  readonly #timers: NodeJS.Timeout[]

  constructor(everyMs = checkEveryMs, crowd: CrowdLimits = usualCrowd) {
    this.#timers = [
      setInterval(() => this.#check(), everyMs).unref(),
      setInterval(() => this.#checkCrowd(crowd), crowd.everyMs).unref(),
    ]
  }

  /** @param orgId whose preview the client visits; the last one counts. */
  watch(socket: Socket, orgId: string): void {
    const known = this.#clients.get(socket)
    if (known) {
      known.orgId = orgId
      return
    }
    this.#clients.set(socket, { orgId, taken: { alone: -1, crowd: -1 } })
    socket.once('close', () => this.#clients.delete(socket))
  }

  stop(): void {
    for (const timer of this.#timers) clearInterval(timer)
  }

  #check(): void {
    for (const [socket, { taken }] of this.#clients) {
      if (progressOf(socket, taken, 'alone') === 0) reset(socket)
    }
  }

  #checkCrowd({ slowMax, leastBytes }: CrowdLimits): void {
    const slow = new Map<string, { socket: Socket; bytes: number }[]>()
    for (const [socket, { orgId, taken }] of this.#clients) {
      const bytes = progressOf(socket, taken, 'crowd')
      if (bytes >= leastBytes) continue
      const ofOrg = slow.get(orgId) ?? []
      ofOrg.push({ socket, bytes })
      slow.set(orgId, ofOrg)
    }
    for (const ofOrg of slow.values()) {
      if (ofOrg.length <= slowMax) continue
      ofOrg.sort((one, other) => other.bytes - one.bytes)
      for (const { socket } of ofOrg.slice(slowMax)) reset(socket)
    }
  }
}

/** Returns the bytes that a client took since the last check; infinity if nothing waited for it then or now. */
function progressOf(socket: Socket, taken: Client['taken'], kind: keyof Client['taken']): number {
  const before = taken[kind]
  const now = socket.writableLength === 0 ? -1 : socket.bytesWritten - socket.writableLength
  taken[kind] = now
  return before === -1 || now === -1 ? Number.POSITIVE_INFINITY : now - before
}

/** Closes a connection without what waits for its client, which the kernel would otherwise keep for minutes. */
function reset(socket: Socket): void {
  if (socket instanceof TLSSocket) socket.destroy()
  else socket.resetAndDestroy()
}
