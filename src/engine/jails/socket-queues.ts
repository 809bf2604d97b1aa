import { closeSync, openSync, readSync } from 'node:fs'

/** One socket cannot hold more: `net.core.wmem_default` and `rmem_default`, and one message that was let in before. */
const udpSocketBytes = 512 * 1024
const tcpSocketBytes = 256 * 1024
/** Beside what an unaccepted connection has received: the kernel's own structures. */
const connectionBytes = 4 * 1024
/** Of one listing. A longer one is judged by its first rows. */
const listingBytes = 256 * 1024

const listing = Buffer.alloc(listingBytes)

const names = ['netlink', 'sockstat', 'udp', 'udp6', 'tcp', 'tcp6'] as const
type Name = (typeof names)[number]

/**
 * The socket buffers of one network namespace that the kernel charges to no cgroup: answers of netlink, datagrams that are
 * corked or (cgroup v1) unread, connections that wait to be accepted.
 *
 * The listings are opened once. An open one shows its network namespace also after the process that led to it has ended.
 */
export class SocketQueues {
  readonly #fds: ReadonlyMap<Name, number>

  private constructor(fds: ReadonlyMap<Name, number>) {
    this.#fds = fds
  }

  /** @param pid a process in the namespace. @returns `undefined` when it is gone, or is a zombie. */
  static open(pid: number): SocketQueues | undefined {
    const fds = new Map<Name, number>()
    const queues = new SocketQueues(fds)
    for (const name of names) {
      const fd = openIfThere(`/proc/${pid}/net/${name}`)
      if (fd !== undefined) fds.set(name, fd)
    }
    // Those of IPv6 are absent where the machine has none.
    if (['netlink', 'sockstat', 'udp', 'tcp'].every((name) => fds.has(name as Name))) return queues
    queues.close()
    return undefined
  }

  close(): void {
    for (const fd of this.#fds.values()) closeSync(fd)
  }

  /** @param limitBytes above which the answer must be exact. */
  heldBytes(limitBytes: number): number {
    let held = netlinkBytes(this.#read('netlink'))
    const { udp, tcp } = countsOf(this.#read('sockstat'))
    // The long listings are read only where the number of sockets makes it possible that they hold too much.
    if (held + udp * udpSocketBytes > limitBytes)
      for (const name of ['udp', 'udp6'] as const) held += queuedBytes(this.#read(name), udp, allRows)
    if (held + tcp * tcpSocketBytes > limitBytes)
      for (const name of ['tcp', 'tcp6'] as const) held += queuedBytes(this.#read(name), tcp, unacceptedRows)
    return held
  }

  #read(name: Name): string {
    const fd = this.#fds.get(name)
    if (fd === undefined) return ''
    let length = 0
    for (;;) {
      const got = readSync(fd, listing, length, listingBytes - length, length)
      length += got
      if (got === 0 || length === listingBytes) return listing.toString('latin1', 0, length)
    }
  }
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

function openIfThere(path: string): number | undefined {
  try {
    return openSync(path, 'r')
  } catch {
    return undefined
  }
}
