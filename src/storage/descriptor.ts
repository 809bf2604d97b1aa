import { close, fchmod, fchown, fstat, open, read, type Stats, write } from 'node:fs'
import { promisify } from 'node:util'

const chmodFd = promisify(fchmod)
const chownFd = promisify(fchown)
const closeFd = promisify(close)
const openFd = promisify(open)
const readFd = promisify(read)
const statFd = promisify(fstat)
const writeFd = promisify(write)

/** An open file descriptor: closed once, by `close` or at the end of an `await using`. */
export class Descriptor {
  #fd: number

  constructor(fd: number) {
    this.#fd = fd
  }

  /** Opens a trusted path. Never use it for a path from a sandbox. */
  static async open(path: string, flags: number, mode = 0o600): Promise<Descriptor> {
    return new Descriptor(await openFd(path, flags, mode))
  }

  /** @throws Error after `close`, since the number can refer to another file then. */
  get fd(): number {
    if (this.#fd < 0) throw new Error('the descriptor is closed')
    return this.#fd
  }

  stat(): Promise<Stats> {
    return statFd(this.fd)
  }

  /** @returns the number of bytes read; 0 at the end. */
  async read(into: Uint8Array, position: number): Promise<number> {
    return (await readFd(this.fd, into, 0, into.byteLength, position)).bytesRead
  }

  /** Writes all bytes. */
  async write(bytes: Uint8Array, position: number): Promise<void> {
    for (let done = 0; done < bytes.byteLength; ) {
      const { bytesWritten } = await writeFd(this.fd, bytes, done, bytes.byteLength - done, position + done)
      done += bytesWritten
    }
  }

  chown(uid: number, gid: number): Promise<void> {
    return chownFd(this.fd, uid, gid)
  }

  chmod(mode: number): Promise<void> {
    return chmodFd(this.fd, mode)
  }

  async close(): Promise<void> {
    const fd = this.#fd
    this.#fd = -1
    if (fd >= 0) await closeFd(fd)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}
