import { closeSync, openSync, readSync } from 'node:fs'

/** What one holds before it refuses more: `net.core.wmem_default`, and one message that was let in before. */
const udpSocketBytes = 512 * 1024
/** Beside what an unaccepted connection has received: the kernel's own structures. */
const connectionBytes = 4 * 1024
/** The unit in which the kernel counts the memory of TCP; where its size varies, the largest. */
const pageBytes = process.arch === 'x64' ? 4 * 1024 : 64 * 1024
/** Of one listing. A longer one is judged by its first rows. */
const listingBytes = 256 * 1024

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

  /** Whether it is possible that they hold more than `limitBytes`, apart from netlink. Two short reads. */
  mayHold(limitBytes: number): boolean {
    const sockets = socketsOf(this.#read('sockstat'))
    return mayHoldUdp(sockets, limitBytes) || this.#mayHoldTcp(sockets, limitBytes)
  }

  /** What they hold; of more than `limitBytes`, at least that. Listing TCP takes milliseconds, since it searches that of the machine. */
  heldBytes(limitBytes: number): number {
    const sockets = socketsOf(this.#read('sockstat'))
    const inIpv6 = this.#read('sockstat6')
    let held = netlinkBytes(this.#read('netlink'))
    if (mayHoldUdp(sockets, limitBytes - held)) {
      held += this.#sum('udp', sockets.udp, corkedRows, limitBytes - held)
      if (!/^UDP6: inuse 0$/m.test(inIpv6)) held += this.#sum('udp6', sockets.udp, corkedRows, limitBytes - held)
    }
    if (this.#mayHoldTcp(sockets, limitBytes - held)) {
      const receivedBytes = receivedBytesOf(this.#read('dev'))
      let unacceptedBytes = this.#sum('tcp', sockets.tcp, unacceptedRows, limitBytes - held)
      if (!/^TCP6: inuse 0$/m.test(inIpv6))
        unacceptedBytes += this.#sum('tcp6', sockets.tcp, unacceptedRows, limitBytes - held - unacceptedBytes)
      this.#listed = { receivedBytes, unacceptedBytes }
      held += unacceptedBytes
    }
    return held
  }

  /** Sums the queues of a listing, until they exceed a limit. A long listing is judged by its first rows. */
  #sum(name: Name, sockets: number, weigh: Weigh, limitBytes: number): number {
    let sum = 0
    let rows = 0
    let rest = ''
    for (let at = 0; at < listingBytes && sum <= limitBytes; ) {
      const piece = this.#readPiece(name, at)
      if (piece === '') return sum
      at += piece.length
      const text = rest + piece
      const end = text.lastIndexOf('\n') + 1
      const found = queuesIn(text.slice(0, end), weigh)
      sum += found.bytes
      rows += found.rows
      rest = text.slice(end)
    }
    return rows === 0 ? 0 : (sum * Math.max(sockets, rows)) / rows
  }

  /** What was not accepted has been received, and the kernel counts it for the machine. */
  #mayHoldTcp({ tcp, tcpBytes }: Sockets, limitBytes: number): boolean {
    if (tcp === 0 || tcpBytes + tcp * connectionBytes <= limitBytes) return false
    const { receivedBytes, unacceptedBytes } = this.#listed
    const newBytes = receivedBytesOf(this.#read('dev')) - receivedBytes
    return unacceptedBytes + newBytes + tcp * connectionBytes > limitBytes
  }

  #read(name: Name): string {
    let text = ''
    while (text.length < listingBytes) {
      const piece = this.#readPiece(name, text.length)
      if (piece === '') break
      text += piece
    }
    return text
  }

  /** The kernel gives a page at once. */
  #readPiece(name: Name, at: number): string {
    const fd = this.#fds.get(name)
    return fd === undefined
      ? ''
      : pieceBuffer.toString('latin1', 0, readSync(fd, pieceBuffer, 0, pieceBuffer.length, at))
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

interface Sockets {
  udp: number
  tcp: number
  /** What TCP sockets of the whole machine hold, also those that were not accepted. */
  tcpBytes: number
}

/** From the first lines of /proc/net/sockstat. Those of IPv6 count there, too. */
export function socketsOf(text: string): Sockets {
  const count = (pattern: RegExp) => Number(pattern.exec(text)?.[1] ?? 0)
  return {
    udp: count(/^UDP: inuse (\d+)/m),
    tcp: count(/^TCP: inuse (\d+)/m) + count(/^TCP: .* orphan (\d+)/m),
    tcpBytes: count(/^TCP: .* mem (\d+)/m) * pageBytes,
  }
}

const mayHoldUdp = ({ udp }: Sockets, limitBytes: number): boolean => udp * udpSocketBytes > limitBytes

/** Of all interfaces, from /proc/net/dev. */
export function receivedBytesOf(text: string): number {
  let sum = 0
  for (const [, bytes] of text.matchAll(/^ *\S+: *(\d+)/gm)) sum += Number(bytes)
  return sum
}

/** Of a row: what its socket holds to send and received, and the rest of the row after that. */
type Weigh = (sentBytes: number, receivedBytes: number, rest: string) => number

/** Datagrams that are corked. Unread ones are charged, with cgroup v1 to the limit of socket buffers. */
export const corkedRows: Weigh = (sentBytes) => sentBytes

/** A connection that was not accepted has no file, so its inode is 0. What is accepted is charged to its owner. */
export const unacceptedRows: Weigh = (sentBytes, receivedBytes, rest) =>
  /^ *\S+ +\S+ +\d+ +\d+ +0 /.test(rest) ? sentBytes + receivedBytes + connectionBytes : 0

/** The columns before the queues: number, two addresses with ports, state. */
const beforeQueues = / *\d+: \w+:\w+ \w+:\w+ \w\w /y
/** State of a connection that has ended, of which the kernel keeps a few words and no buffers. */
const timeWait = '06'
/** Two numbers of eight hexadecimal digits with a colon. */
const queuesLength = 17

/** Sums the queues of rows as in /proc/net/udp, with or without their heading. */
export function queuesIn(text: string, weigh: Weigh): { bytes: number; rows: number } {
  let bytes = 0
  let rows = 0
  for (let start = 0; start < text.length; start = text.indexOf('\n', start) + 1) {
    beforeQueues.lastIndex = start
    if (!beforeQueues.test(text)) continue
    const at = beforeQueues.lastIndex
    if (text.startsWith(timeWait, at - 3)) continue
    const sent = Number.parseInt(text.slice(at, at + 8), 16)
    const received = Number.parseInt(text.slice(at + 9, at + queuesLength), 16)
    bytes += weigh(sent, received, text.slice(at + queuesLength, text.indexOf('\n', at)))
    rows += 1
  }
  return { bytes, rows }
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
