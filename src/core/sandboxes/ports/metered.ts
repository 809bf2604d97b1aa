import { Duplex } from 'node:stream'

/** @returns for how many milliseconds no more may follow; `undefined` ends the connection. */
export type CountBytes = (bytes: number, direction: 'sent' | 'received') => number | undefined

/** A connection whose bytes are counted, and delayed as the count says. Each direction ends on its own. */
export class MeteredConnection extends Duplex {
  readonly #inner: Duplex
  readonly #count: CountBytes
  readonly #timers = new Set<NodeJS.Timeout>()
  #isWanted = false
  #isPaced = false

  constructor(inner: Duplex, count: CountBytes) {
    super({
      allowHalfOpen: true,
      readableHighWaterMark: inner.readableHighWaterMark,
      writableHighWaterMark: inner.writableHighWaterMark,
    })
    this.#inner = inner
    this.#count = count
    inner.pause()
    inner.on('data', (piece: Buffer) => this.#received(piece))
    inner.once('end', () => this.push(null))
    inner.on('error', (error) => this.destroy(error))
    inner.once('close', () => this.#lost())
  }

  override _read(): void {
    this.#isWanted = true
    if (!this.#isPaced) this.#inner.resume()
  }

  override _write(piece: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    const waitMs = this.#count(piece.length, 'sent')
    if (waitMs === undefined) done(usedUp())
    else this.#inner.write(piece, (error) => (error || waitMs === 0 ? done(error) : this.#after(waitMs, done)))
  }

  override _final(done: () => void): void {
    if (this.#inner.writable) this.#inner.end(done)
    else done()
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    for (const timer of this.#timers) clearTimeout(timer)
    this.#inner.destroy()
    done(error)
  }

  #received(piece: Buffer): void {
    const waitMs = this.#count(piece.length, 'received')
    if (waitMs === undefined) {
      this.destroy(usedUp())
      return
    }
    this.#isWanted = this.push(piece)
    if (waitMs > 0) {
      this.#isPaced = true
      this.#after(waitMs, () => {
        this.#isPaced = false
        if (this.#isWanted) this.#inner.resume()
      })
    }
    if (!this.#isWanted || this.#isPaced) this.#inner.pause()
  }

  /** What has arrived can still be read. */
  #lost(): void {
    if (this.readableEnded || !this.#inner.readableEnded) this.destroy()
    else this.once('end', () => this.destroy())
  }

  #after(waitMs: number, done: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer)
      done()
    }, waitMs)
    this.#timers.add(timer)
  }
}

const usedUp = (): Error => new Error('the bytes of its owner are used up')
