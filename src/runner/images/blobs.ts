import { createHash, type Hash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { syncDirectory } from '../../base/durable-directory.ts'
import { codeOf } from '../../kernel/kernel.ts'

/** The bytes are not those of the digest. */
export class DigestMismatch extends Error {
  constructor(digest: string, found: string) {
    super(`the content of ${digest} is not what its digest says: it is ${found}`)
    this.name = 'DigestMismatch'
  }
}

/** Digests that are accepted: https://github.com/opencontainers/image-spec/blob/main/descriptor.md#digests */
export const isDigest = (digest: unknown): digest is string =>
  typeof digest === 'string' && /^sha256:[0-9a-f]{64}$/.test(digest)

export const digestOf = (bytes: Uint8Array): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`

/**
 * Layers by digest, each stored once for all images. A download that was interrupted continues where it ended. A file has
 * its name only after its digest was checked.
 */
export class Blobs {
  readonly #dir: string
  readonly #partial: string

  private constructor(dir: string, partial: string) {
    this.#dir = dir
    this.#partial = partial
  }

  static async open(home: string): Promise<Blobs> {
    const [dir, partial] = [join(home, 'blobs'), join(home, 'partial')]
    for (const each of [dir, partial]) await mkdir(each, { recursive: true, mode: 0o700 })
    return new Blobs(dir, partial)
  }

  async has(digest: string): Promise<boolean> {
    return (await sizeOf(join(this.#dir, hexOf(digest)))) !== undefined
  }

  /** Reads a blob. The digest is checked again, since the disk may have changed. @throws DigestMismatch at the end. */
  async *read(digest: string): AsyncGenerator<Buffer, void, undefined> {
    const hash = createHash('sha256')
    for await (const piece of createReadStream(join(this.#dir, hexOf(digest)), { highWaterMark: 256 * 1024 })) {
      hash.update(piece as Buffer)
      yield piece as Buffer
    }
    const found = `sha256:${hash.digest('hex')}`
    if (found === digest) return
    await rm(join(this.#dir, hexOf(digest)), { force: true })
    throw new DigestMismatch(digest, found)
  }

  /**
   * Stores a blob.
   * @param size as its descriptor says, in bytes; more are never written.
   * @param from returns the bytes from an offset on.
   * @param progress called with the bytes that are stored.
   * @throws DigestMismatch, and nothing is kept; other errors keep what has arrived.
   */
  async store(
    digest: string,
    size: number,
    from: (offset: number) => AsyncIterable<Uint8Array>,
    progress: (bytes: number) => void,
  ): Promise<void> {
    const path = join(this.#partial, hexOf(digest))
    await using file = await open(path, 'a+', 0o600)
    const hash = createHash('sha256')
    let bytes = await hashFile(path, hash)
    progress(bytes)
    if (bytes < size) {
      for await (const piece of from(bytes)) {
        bytes += piece.length
        if (bytes > size) break
        hash.update(piece)
        await file.appendFile(piece)
        progress(bytes)
      }
    }
    const found = `sha256:${hash.digest('hex')}`
    if (bytes !== size || found !== digest) {
      await rm(path, { force: true })
      throw new DigestMismatch(digest, bytes === size ? found : `${bytes > size ? 'more' : 'less'} than ${size} bytes`)
    }
    await file.sync()
    await rename(path, join(this.#dir, hexOf(digest)))
    syncDirectory(this.#dir)
  }

  /** Removes all but some blobs, and unfinished downloads. @returns the number and size of what was removed. */
  async collect(kept: ReadonlySet<string>): Promise<{ layers: number; bytes: number }> {
    const removed = { layers: 0, bytes: 0 }
    for (const dir of [this.#dir, this.#partial]) {
      for (const name of await readdir(dir)) {
        if (kept.has(`sha256:${name}`)) continue
        removed.layers += 1
        removed.bytes += (await sizeOf(join(dir, name))) ?? 0
        await rm(join(dir, name), { force: true })
      }
    }
    return removed
  }
}

const hexOf = (digest: string): string => digest.slice('sha256:'.length)

async function sizeOf(path: string): Promise<number | undefined> {
  try {
    return (await stat(path)).size
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined
    throw error
  }
}

async function hashFile(path: string, hash: Hash): Promise<number> {
  let bytes = 0
  for await (const piece of createReadStream(path, { highWaterMark: 256 * 1024 })) {
    hash.update(piece as Buffer)
    bytes += (piece as Buffer).length
  }
  return bytes
}
