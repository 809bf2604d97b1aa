import { createHash } from 'node:crypto'
import type { Checksum } from './index-document.ts'
import { PackageProblem } from './problem.ts'
import type { PackageStore, Unfinished } from './store.ts'
import type { Upstream } from './upstream.ts'

/** What no client gets before the checksum of the whole file was compared. */
const withheldBytes = 64 * 1024
const pieceBytes = 64 * 1024
/** A file that takes longer is given up. */
const withinMs = 60 * 60_000

/** What is being downloaded. */
export interface Wanted {
  url: string
  checksum?: Checksum
  /** Under which it is kept; absent: it is not. */
  key?: string
}

/** One file on its way from an index, for all who wait for it. It ends when none does any more. */
export class Download {
  /** As the index announced it. */
  lengthBytes: number | undefined
  readonly #store: PackageStore
  readonly #abort = new AbortController()
  #file: Unfinished | undefined
  #writtenBytes = 0
  #isComplete = false
  #hasEnded = false
  #error: unknown
  #followers = 0
  #changed = Promise.withResolvers<void>()
  /** Resolves when nothing of it is on its way any more. Never rejects. */
  readonly ended: Promise<void>

  constructor(store: PackageStore, upstream: Upstream, wanted: Wanted) {
    this.#store = store
    this.ended = this.#run(upstream, wanted).catch((error: unknown) => {
      this.#error = error instanceof PackageProblem ? error : failed(upstream, 'it ended early')
      this.#end()
    })
  }

  /** Whether it is still on its way. */
  get isJoinable(): boolean {
    return !this.#hasEnded && !this.#abort.signal.aborted
  }

  /**
   * Waits until the first bytes may be passed on.
   * @param gone aborts when the client does not read any more.
   * @returns all bytes; reading them rejects when the file turns out to be another one.
   * @throws PackageProblem when the index does not have it, or sends another file.
   */
  async follow(gone: AbortSignal): Promise<AsyncGenerator<Buffer, void, undefined>> {
    this.#followers += 1
    // It waits for changes only.
    const left = () => {
      this.#leave()
      this.#change()
    }
    if (gone.aborted) left()
    else gone.addEventListener('abort', left, { once: true })
    while (this.#availableBytes === 0 && !this.#hasEnded && !gone.aborted) await this.#changed.promise
    gone.throwIfAborted()
    if (this.#error !== undefined) throw this.#error
    return this.#pieces(gone)
  }

  async *#pieces(gone: AbortSignal): AsyncGenerator<Buffer, void, undefined> {
    for (let at = 0; ; ) {
      gone.throwIfAborted()
      if (this.#error !== undefined) throw this.#error
      const ready = Math.min(this.#availableBytes - at, pieceBytes)
      if (ready > 0) {
        const { bytesRead, buffer } = await this.#file!.handle.read(Buffer.allocUnsafe(ready), 0, ready, at)
        if (bytesRead === 0) throw new Error('the file is shorter than it was written')
        at += bytesRead
        yield buffer.subarray(0, bytesRead)
      } else if (this.#isComplete) return
      else await this.#changed.promise
    }
  }

  get #availableBytes(): number {
    return this.#isComplete ? this.#writtenBytes : Math.max(0, this.#writtenBytes - withheldBytes)
  }

  #leave(): void {
    this.#followers -= 1
    if (this.#followers > 0) return
    this.#abort.abort()
    if (this.#hasEnded) void this.#file?.close()
  }

  async #run(upstream: Upstream, { url, checksum, key }: Wanted): Promise<void> {
    const signal = AbortSignal.any([this.#abort.signal, AbortSignal.timeout(withinMs)])
    // What would be decoded is not what the checksum is of.
    const answer = await upstream.get(new URL(url), { 'accept-encoding': 'identity' }, signal)
    answer.body.on('error', () => undefined)
    try {
      if (answer.status === 404 || answer.status === 410)
        throw new PackageProblem(404, 'the index does not have this file')
      if (answer.status !== 200) throw failed(upstream, `it answered with status ${answer.status}`)
      const length = Number(answer.headers['content-length'] ?? Number.NaN)
      if (length > this.#store.fileMaxBytes) throw tooLarge(this.#store)
      this.lengthBytes = Number.isNaN(length) ? undefined : length
      this.#file = await this.#store.begin()
      const hash = checksum && createHash(checksum.algorithm)
      for await (const piece of answer.body as AsyncIterable<Buffer>) {
        upstream.count(piece.length)
        if (this.#writtenBytes + piece.length > this.#store.fileMaxBytes) throw tooLarge(this.#store)
        await this.#file.grow(piece.length)
        await this.#file.handle.write(piece, 0, piece.length, this.#writtenBytes)
        hash?.update(piece)
        this.#writtenBytes += piece.length
        this.#change()
      }
      if (this.lengthBytes !== undefined && this.lengthBytes !== this.#writtenBytes)
        throw failed(upstream, 'the file has another length than announced')
      if (hash?.digest('hex') !== checksum?.hex)
        throw failed(upstream, 'the file does not have the checksum that the index lists')
      if (key !== undefined) await this.#file.keep(key)
      this.#isComplete = true
      this.#end()
    } finally {
      answer.body.destroy()
    }
  }

  #end(): void {
    this.#hasEnded = true
    this.#change()
    if (this.#followers === 0) void this.#file?.close()
  }

  #change(): void {
    const { resolve } = this.#changed
    this.#changed = Promise.withResolvers()
    resolve()
  }
}

const failed = (upstream: Upstream, how: string): PackageProblem =>
  new PackageProblem(502, `the index ${upstream.base.host} failed: ${how}`)

const tooLarge = (store: PackageStore): PackageProblem =>
  new PackageProblem(507, `the file has more than ${store.fileMaxBytes} bytes, a quarter of the package cache`)
