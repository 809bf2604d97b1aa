import { closeSync, openSync, readSync } from 'node:fs'

/** What one holds before it refuses more: `net.core.wmem_default`, and one message that was let in before. */
const udpSocketBytes = 512 * 1024
/** Beside what an unaccepted connection has received: the kernel's own structures. */
const connectionBytes = 4 * 1024
/** The unit in which the kernel counts the memory of TCP; where its size varies, the largest. */
const pageBytes = process.arch === 'x64' ? 4 * 1024 : 64 * 1024
/** Sockets that are listed at most, so that a listing takes milliseconds: so many, or one for so much of the limit. */
const minRows = 1024
const limitBytesPerRow = 10 * 1024
/** Of one listing, for each row that it may have. The longest rows are those of TCP with IPv6. */
const maxRowBytes = 256
/** Connections that have ended are listed, too: tcp_max_tw_buckets of a jail, see guest/net.c. */
const maxEndedRows = 512

const maxRowsOf = (limitBytes: number): number => Math.max(minRows, limitBytes / limitBytesPerRow)

const pieceBuffer = Buffer.alloc(64 * 1024)

const names = ['netlink', 'sockstat', 'sockstat6', 'dev', 'udp', 'udp6', 'tcp', 'tcp6'] as const
type Name = (typeof names)[number]

/**
 * The socket buffers of one network namespace that the kernel charges to no cgroup: answers of netlink, datagrams that are
 * corked, connections that wait to be accepted.
 *
 * The listings are opened once. An open one shows its network namespace also after the process that led to it has ended.
 */
export class SocketQueues {
  readonly #fds: ReadonlyMap<Name, number>
  /** At the last listing of TCP. */
  #listed = { receivedBytes: 0, unacceptedBytes: 0 }

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

  /** Whether it is possible that they hold more than `limitBytes`, apart from netlink. Some short reads. */
  mayHold(limitBytes: number): boolean {
    const sockets = this.#sockets()
    return mayHoldUdp(sockets, limitBytes) || this.#mayHoldTcp(sockets, limitBytes)
  }

  /** Whether they can hold more than `limitBytes` and are too many to be listed. As short as `mayHold`. */
  areTooMany(limitBytes: number): boolean {
    const sockets = this.#sockets()
    const maxRows = maxRowsOf(limitBytes)
    if (sockets.udp + sockets.udp6 > maxRows && mayHoldUdp(sockets, limitBytes)) return true
    return sockets.tcp + sockets.tcp6 > maxRows && this.#mayHoldTcp(sockets, limitBytes)
  }

  /**
   * What they hold; of more than `limitBytes`, at least that. Listing TCP takes milliseconds, since it searches that of the
   * machine. Sockets that are too many to be listed count with the most that they can hold, so that none hides behind others.
   */
  heldBytes(limitBytes: number): number {
    const maxRows = maxRowsOf(limitBytes)
    const sockets = this.#sockets()
    // The rows of netlink are half as long.
    let held = this.#sum('netlink', netlinkBytesIn, limitBytes, maxRows / 2)
    if (mayHoldUdp(sockets, limitBytes - held)) {
      if (sockets.udp + sockets.udp6 > maxRows) return Number.POSITIVE_INFINITY
      if (sockets.udp > 0) held += this.#sum('udp', corkedBytesIn, limitBytes - held, maxRows)
      if (sockets.udp6 > 0) held += this.#sum('udp6', corkedBytesIn, limitBytes - held, maxRows)
    }
    if (this.#mayHoldTcp(sockets, limitBytes - held)) {
      if (sockets.tcp + sockets.tcp6 > maxRows) return Number.POSITIVE_INFINITY
      const receivedBytes = receivedBytesOf(this.#read('dev'))
      let unacceptedBytes = 0
      for (const name of ['tcp', 'tcp6'] as const)
        if (sockets[name] > 0)
          unacceptedBytes += this.#sum(
            name,
            unacceptedBytesIn,
            limitBytes - held - unacceptedBytes,
            maxRows + maxEndedRows,
          )
      this.#listed = { receivedBytes, unacceptedBytes }
      held += unacceptedBytes
    }
    return held
  }

  /** Sums the rows of a listing, until they exceed a limit. One with more than `maxRows` counts without a limit. */
  #sum(name: Name, bytesIn: (rows: string) => number, limitBytes: number, maxRows: number): number {
    let sum = 0
    let rest = ''
    for (let at = 0; at < maxRows * maxRowBytes; ) {
      const piece = sum > limitBytes ? '' : this.#readPiece(name, at)
      if (piece === '') return sum
      at += piece.length
      const text = rest + piece
      const end = text.lastIndexOf('\n') + 1
      sum += bytesIn(text.slice(0, end))
      rest = text.slice(end)
    }
    return Number.POSITIVE_INFINITY
  }

  /** What was not accepted has been received, and the kernel counts it for the machine. */
  #mayHoldTcp({ tcp, tcp6, tcpBytes }: Sockets, limitBytes: number): boolean {
    const structureBytes = (tcp + tcp6) * connectionBytes
    if (structureBytes === 0 || tcpBytes + structureBytes <= limitBytes) return false
    const { receivedBytes, unacceptedBytes } = this.#listed
    const newBytes = receivedBytesOf(this.#read('dev')) - receivedBytes
    return unacceptedBytes + newBytes + structureBytes > limitBytes
  }

  #sockets(): Sockets {
    return socketsOf(this.#readPiece('sockstat', 0), this.#readPiece('sockstat6', 0))
  }

  #read(name: Name): string {
    let text = ''
    for (;;) {
      const piece = this.#readPiece(name, text.length)
      if (piece === '') return text
      text += piece
    }
  }

  /** The kernel gives a page at once. */
  #readPiece(name: Name, at: number): string {
    const fd = this.#fds.get(name)
    return fd === undefined
      ? ''
      : pieceBuffer.toString('latin1', 0, readSync(fd, pieceBuffer, 0, pieceBuffer.length, at))
  }
}

/**
 * Sums the columns Rmem and Wmem of whole rows of /proc/net/netlink, with or without their heading:
 * https://man7.org/linux/man-pages/man5/proc_pid_net.5.html
 */
export function netlinkBytesIn(rows: string): number {
  let sum = 0
  for (const [, received, sent] of rows.matchAll(/^[0-9a-f]+ +\d+ +\d+ +[0-9a-f]+ +(\d+) +(\d+) /gm))
    sum += Number(received) + Number(sent)
  return sum
}

/** Of one network namespace, unless said otherwise. Connections that were not accepted are among those of TCP. */
interface Sockets {
  udp: number
  udp6: number
  tcp: number
  tcp6: number
  /** What TCP sockets of the whole machine hold, also those that were not accepted. */
  tcpBytes: number
}

/**
 * From /proc/net/sockstat and /proc/net/sockstat6. Each counts those of its own version of IP only.
 * @param text6 empty where the machine has no IPv6.
 */
export function socketsOf(text: string, text6: string): Sockets {
  const count = (of: string, pattern: RegExp) => Number(pattern.exec(of)?.[1] ?? 0)
  return {
    udp: count(text, /^UDP: inuse (\d+)/m),
    udp6: count(text6, /^UDP6: inuse (\d+)/m),
    tcp: count(text, /^TCP: inuse (\d+)/m),
    tcp6: count(text6, /^TCP6: inuse (\d+)/m),
    tcpBytes: count(text, /^TCP: .* mem (\d+)/m) * pageBytes,
  }
}

const mayHoldUdp = ({ udp, udp6 }: Sockets, limitBytes: number): boolean => (udp + udp6) * udpSocketBytes > limitBytes

/** Of all interfaces, from /proc/net/dev. */
export function receivedBytesOf(text: string): number {
  let sum = 0
  for (const [, bytes] of text.matchAll(/^ *\S+: *(\d+)/gm)) sum += Number(bytes)
  return sum
}

/** Datagrams that are corked. Unread ones are charged, with cgroup v1 to the limit of socket buffers. */
export const corkedBytesIn = (rows: string): number => bytesIn(rows, (sentBytes) => sentBytes)

/** A connection that was not accepted has no file, so its inode is 0. What is accepted is charged to its owner. */
export const unacceptedBytesIn = (rows: string): number =>
  bytesIn(rows, (sentBytes, receivedBytes, rest) =>
    /^ *\S+ +\S+ +\d+ +\d+ +0 /.test(rest) ? sentBytes + receivedBytes + connectionBytes : 0,
  )

/** Of a row: what its socket holds to send and received, and the rest of the row after that. */
type Weigh = (sentBytes: number, receivedBytes: number, rest: string) => number

/** The columns before the queues: number, two addresses with ports, state. */
const beforeQueues = / *\d+: \w+:\w+ \w+:\w+ \w\w /y
/** State of a connection that has ended, of which the kernel keeps a few words and no buffers. */
const timeWait = '06'
/** Two numbers of eight hexadecimal digits with a colon. */
const queuesLength = 17

/** Of whole rows as in /proc/net/udp, with or without their heading. */
function bytesIn(rows: string, weigh: Weigh): number {
  let sum = 0
  for (let start = 0; start < rows.length; start = rows.indexOf('\n', start) + 1) {
    beforeQueues.lastIndex = start
    if (!beforeQueues.test(rows)) continue
    const at = beforeQueues.lastIndex
    if (rows.startsWith(timeWait, at - 3)) continue
    const sent = Number.parseInt(rows.slice(at, at + 8), 16)
    const received = Number.parseInt(rows.slice(at + 9, at + queuesLength), 16)
    sum += weigh(sent, received, rows.slice(at + queuesLength, rows.indexOf('\n', at)))
  }
  return sum
}

/** @throws Error when this process can open no more files: what cannot be watched must not run. */
function openIfThere(path: string): number | undefined {
  try {
    return openSync(path, 'r')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EMFILE' || code === 'ENFILE') throw error
    return undefined
  }
}
