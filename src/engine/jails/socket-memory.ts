import { closeSync, openSync, readSync } from 'node:fs'

/**
 * What sockets of a run may hold beside its memory limit, as a share of that limit. The kernel charges these buffers to
 * no cgroup: answers of netlink, datagrams that are corked or (cgroup v1) unread, connections that wait to be accepted.
 */
const heldShare = 0.05
/** A tenth of the smallest limit that a profile can have, less what is filled between two looks. */
const heldMinBytes = 1280 * 1024
/** A program fills buffers at about 1 MiB per millisecond of its processor time, which bounds what passes between two looks. */
const intervalMs = 40
/** The longest interval while a sandbox uses no processor time, since most sandboxes are idle most of the time. */
const idleIntervalMs = 160
/** Processor time within which little can be filled, in seconds. */
const idleSeconds = 0.001
/** One socket cannot hold more: `net.core.wmem_default` and `rmem_default`, and one message that was let in before. */
const udpSocketBytes = 512 * 1024
const tcpSocketBytes = 256 * 1024
/** Beside what an unaccepted connection has received: the kernel's own structures. */
const connectionBytes = 4 * 1024
/** Of one listing. A longer one is judged by its first rows. */
const listingBytes = 256 * 1024

const listing = Buffer.alloc(listingBytes)

/**
 * Watches the socket buffers of one run or sandbox that no cgroup limits, and reports once when they exceed their share.
 * @param pids its processes, by their number on the host.
 * @param memoryBytes its memory limit.
 * @param exceeded called at most once.
 * @param cpuSeconds processor time that it has used so far. If given, buffers are only read after it used some.
 */
export class SocketMemoryWatch {
  readonly #pids: () => readonly number[]
  readonly #limitBytes: number
  readonly #exceeded: () => void
  readonly #cpuSeconds: (() => number) | undefined
  #timer: NodeJS.Timeout
  #pid: number | undefined
  #lookedAtSeconds = 0
  #intervalMs = intervalMs

  constructor(pids: () => readonly number[], memoryBytes: number, exceeded: () => void, cpuSeconds?: () => number) {
    this.#pids = pids
    this.#limitBytes = Math.max(heldMinBytes, memoryBytes * heldShare)
    this.#exceeded = exceeded
    this.#cpuSeconds = cpuSeconds
    this.#timer = setTimeout(() => this.#look(), intervalMs)
  }

  stop(): void {
    clearTimeout(this.#timer)
  }

  #look(): void {
    if (this.#wasActive() && this.#heldBytes() > this.#limitBytes) {
      this.#exceeded()
      return
    }
    this.#timer = setTimeout(() => this.#look(), this.#intervalMs)
  }

  #wasActive(): boolean {
    const seconds = this.#cpuSeconds?.()
    if (seconds === undefined) return true
    const wasActive = seconds - this.#lookedAtSeconds >= idleSeconds
    this.#intervalMs = wasActive ? intervalMs : Math.min(this.#intervalMs * 2, idleIntervalMs)
    if (wasActive) this.#lookedAtSeconds = seconds
    return wasActive
  }

  /** @returns 0 when every process that was asked has just ended. */
  #heldBytes(): number {
    const known = this.#pid !== undefined ? heldBytes(this.#pid, this.#limitBytes) : undefined
    if (known !== undefined) return known
    // All processes of a run share one network namespace, so any of them answers for all.
    for (const pid of this.#pids().slice(0, 8)) {
      const held = heldBytes(pid, this.#limitBytes)
      if (held === undefined) continue
      this.#pid = pid
      return held
    }
    return 0
  }
}

/** @returns `undefined` when the process is gone, or is a zombie. */
function heldBytes(pid: number, limitBytes: number): number | undefined {
  const netlink = read(pid, 'netlink')
  const sockstat = read(pid, 'sockstat')
  if (netlink === undefined || sockstat === undefined) return undefined
  let held = netlinkBytes(netlink)
  const { udp, tcp } = countsOf(sockstat)
  // The long listings are read only where the number of sockets makes it possible that they hold too much.
  if (held + udp * udpSocketBytes > limitBytes)
    for (const name of ['udp', 'udp6']) held += queuedBytes(read(pid, name) ?? '', udp, allRows)
  if (held + tcp * tcpSocketBytes > limitBytes)
    for (const name of ['tcp', 'tcp6']) held += queuedBytes(read(pid, name) ?? '', tcp, unacceptedRows)
  return held
}

/** Columns Rmem and Wmem of /proc/net/netlink: https://man7.org/linux/man-pages/man5/proc_pid_net.5.html */
export function netlinkBytes(text: string): number {
  let sum = 0
  for (const line of text.split('\n').slice(1)) {
    const [, , , , received = '0', sent = '0'] = line.trim().split(/\s+/)
    sum += Number(received) + Number(sent)
  }
  return sum
}

/** The number of sockets of both protocols, from the first lines of /proc/net/sockstat (those of IPv6 count there too). */
export function countsOf(text: string): { udp: number; tcp: number } {
  const count = (pattern: RegExp) => Number(pattern.exec(text)?.[1] ?? 0)
  return { udp: count(/^UDP: inuse (\d+)/m), tcp: count(/^TCP: inuse (\d+)/m) + count(/^TCP: .* orphan (\d+)/m) }
}

interface Row {
  queuedBytes: number
  /** Of the socket's file; 0 while a connection was not accepted, and when its file was closed. */
  inode: number
}

/** Corked and unread datagrams. */
const allRows = ({ queuedBytes }: Row): number => queuedBytes
/** What is accepted is charged to its owner. */
const unacceptedRows = ({ queuedBytes, inode }: Row): number => (inode === 0 ? queuedBytes + connectionBytes : 0)

/** Sums the queues in a listing such as /proc/net/udp. @param sockets how many there are, for a listing that was cut. */
export function queuedBytes(text: string, sockets: number, weigh: (row: Row) => number): number {
  const lines = text.slice(0, text.lastIndexOf('\n')).split('\n').slice(1)
  let sum = 0
  for (const line of lines) {
    const fields = line.trim().split(/\s+/)
    const [sent = '0', received = '0'] = (fields[4] ?? '').split(':')
    const queuedBytes = Number.parseInt(sent, 16) + Number.parseInt(received, 16)
    sum += weigh({ queuedBytes: Number.isNaN(queuedBytes) ? 0 : queuedBytes, inode: Number(fields[9] ?? 1) })
  }
  const isCut = text.length >= listingBytes - 256
  return isCut && lines.length > 0 ? (sum * Math.max(sockets, lines.length)) / lines.length : sum
}

function read(pid: number, name: string): string | undefined {
  let fd: number
  try {
    fd = openSync(`/proc/${pid}/net/${name}`, 'r')
  } catch {
    return undefined
  }
  try {
    let length = 0
    for (;;) {
      const got = readSync(fd, listing, length, listingBytes - length, null)
      length += got
      if (got === 0 || length === listingBytes) return listing.toString('latin1', 0, length)
    }
  } catch {
    return undefined
  } finally {
    closeSync(fd)
  }
}
