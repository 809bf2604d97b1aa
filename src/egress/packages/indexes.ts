import { createHash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { CachedManager } from '../../base/package-cache.ts'
import { FairLookups } from '../fair-lookups.ts'
import { digest, type ReadIndex } from './index-document.ts'
import type { IndexReader } from './index-reader.ts'
import { documentMaxBytes } from './index-thread.ts'
import { PackageProblem } from './problem.ts'
import type { PackageStore } from './store.ts'
import type { Upstream } from './upstream.ts'

/** For this time an index gets no second request for a document. */
const freshMs = 60_000
/** For this time an index that failed gets no request for what is kept. */
const failedMs = 10_000
/** Memory for documents that were read. */
const memoryBytes = 128 * 1024 * 1024
/** Including the transfer of the document. */
const withinMs = 60_000
/** Memory for one file that a document lists, and for the document itself. */
const fileBytes = 512
/** Documents that are fetched and read at once: each needs several times its size. */
const asking = { active: 16, activePerOrg: 4 }

/**
 * Which document of a package: npm has a short one, for installations. Of a Debian archive: one that is passed on unchanged, or
 * a list of packages that is read.
 */
export type Variant = 'page' | 'install' | 'full' | 'unchanged' | 'list'

const accepted: Readonly<Record<Variant, string>> = {
  page: 'application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.5, text/html;q=0.2',
  install: 'application/vnd.npm.install-v1+json, application/json;q=0.5',
  full: 'application/json',
  unchanged: '*/*',
  list: '*/*',
}

/** A document as the index sent it. */
interface Stored {
  etag: string
  url: string
  isJson: boolean
  isGzip: boolean
  bytes: Buffer
}

interface Known {
  etag: string
  index: ReadIndex
  /** When the index was asked last, in milliseconds of this process; 0 for what was read from the disk. */
  askedMs: number
}

/** The documents of one index, with their copies on the disk, which are used when the index does not answer. */
export class Indexes {
  readonly #manager: CachedManager
  readonly #upstream: Upstream
  readonly #store: PackageStore
  readonly #reader: IndexReader
  readonly #fair = new FairLookups('too many documents of package indexes are requested by this organization', asking)
  readonly #known = new LRUCache<string, Known>({
    maxSize: memoryBytes,
    sizeCalculation: ({ index }) => index.body.length + fileBytes * (index.files.size + 1),
  })
  readonly #asking = new Map<string, Promise<ReadIndex>>()
  #failedUntilMs = 0

  constructor(manager: CachedManager, upstream: Upstream, store: PackageStore, reader: IndexReader) {
    this.#manager = manager
    this.#upstream = upstream
    this.#store = store
    this.#reader = reader
  }

  /** @param path of the document below the index. @throws PackageProblem. */
  async get(name: string, path: string, variant: Variant, orgId: string): Promise<ReadIndex> {
    const key = `index-${digest('sha256', Buffer.from(`${this.#upstream.base} ${this.#manager} ${variant} ${name}`))}`
    const known = this.#known.get(key)
    if (known && this.#isFresh(known)) return known.index
    // Others wait only for what has begun, and not in the queue of another organization.
    return (
      this.#asking.get(key) ??
      this.#fair.run(orgId, () => {
        const asking = this.#asking.get(key)
        if (asking !== undefined) return asking
        const began = this.#ask(key, name, path, variant).finally(() => this.#asking.delete(key))
        this.#asking.set(key, began)
        return began
      })
    )
  }

  #isFresh({ askedMs }: Known): boolean {
    const nowMs = performance.now()
    return (askedMs > 0 && nowMs - askedMs < freshMs) || nowMs < this.#failedUntilMs
  }

  async #ask(key: string, name: string, path: string, variant: Variant): Promise<ReadIndex> {
    const known = this.#known.get(key) ?? (await this.#fromDisk(key, name, variant))
    if (known && this.#isFresh(known)) return known.index
    try {
      const stored = await this.#fetch(path, variant, known?.etag)
      if (stored === undefined) {
        if (known === undefined) throw this.#problem('it answered with status 304')

        known.askedMs = performance.now()
        return known.index
      }
      const index = await this.#read(stored, name, variant)
      this.#known.set(key, { etag: stored.etag, index, askedMs: performance.now() })
      // Without room on the disk it is only in memory.
      await this.#store.write(key, toFile(stored)).catch(() => undefined)
      return index
    } catch (error) {
      if (!(error instanceof PackageProblem)) throw error
      if (error.status === 404) {
        this.#known.delete(key)
        this.#store.remove(key)
      } else if (known) {
        this.#failedUntilMs = performance.now() + failedMs
        return known.index
      }
      throw error
    }
  }

  /** @param etag of the document that is known. @returns undefined when it has not changed. */
  async #fetch(path: string, variant: Variant, etag = ''): Promise<Stored | undefined> {
    const url = new URL(path, this.#upstream.base)
    const headers = {
      accept: accepted[variant],
      // The documents of an archive have checksums as they are.
      'accept-encoding': this.#manager === 'apt' ? 'identity' : 'gzip',
      ...(etag !== '' && { 'if-none-match': etag }),
    }
    const { status, headers: answered, body } = await this.#upstream.get(url, headers, AbortSignal.timeout(withinMs))
    body.on('error', () => undefined)
    try {
      if (status === 304) return undefined
      if (status === 404 || status === 410) throw new PackageProblem(404, 'the index does not have this package')
      if (status !== 200) throw this.#problem(`it answered with status ${status}`)
      const encoding = String(answered['content-encoding'] ?? 'identity').toLowerCase()
      if (encoding !== 'identity' && (encoding !== 'gzip' || this.#manager === 'apt'))
        throw this.#problem('its answer has an unknown encoding')
      const pieces: Buffer[] = []
      let bytes = 0
      for await (const piece of body as AsyncIterable<Buffer>) {
        bytes += piece.length
        this.#upstream.count(piece.length)
        if (bytes > Math.min(documentMaxBytes, this.#store.fileMaxBytes))
          throw this.#problem('its document is larger than the cache accepts')
        pieces.push(piece)
      }
      const type = String(answered['content-type'] ?? '')
      const isGzipList = variant === 'list' && path.endsWith('.gz')
      const isJson = this.#manager === 'npm' || /[/+]json\b/i.test(type)
      return {
        ...{ etag: String(answered.etag ?? '').slice(0, 256), url: url.href },
        ...{ isJson, isGzip: encoding === 'gzip' || isGzipList, bytes: Buffer.concat(pieces) },
      }
    } catch (error) {
      throw error instanceof PackageProblem ? error : this.#problem('its document ended early')
    } finally {
      body.destroy()
    }
  }

  async #read({ url, isJson, isGzip, bytes }: Stored, name: string, variant: Variant): Promise<ReadIndex> {
    if (variant === 'unchanged') return { body: bytes, files: new Map() }
    try {
      return await this.#reader.read({ manager: this.#manager, name, url, isJson, isGzip, bytes })
    } catch {
      throw this.#problem('its document cannot be read')
    }
  }

  /** BOUNDARY: a file that a fault of the disk changed is removed. */
  async #fromDisk(key: string, name: string, variant: Variant): Promise<Known | undefined> {
    const file = await this.#store.read(key)
    if (file === undefined) return undefined
    try {
      const stored = fromFile(await file.handle.readFile())
      const known = { etag: stored.etag, index: await this.#read(stored, name, variant), askedMs: 0 }
      this.#known.set(key, known)
      return known
    } catch {
      this.#store.remove(key)
      return undefined
    } finally {
      await file.handle.close()
    }
  }

  #problem = (how: string): PackageProblem =>
    new PackageProblem(502, `the index ${this.#upstream.base.host} failed: ${how}`)
}

/** The checksum of the rest, what is known of the document, and the document. */
function toFile({ bytes, ...head }: Stored): Buffer {
  const rest = Buffer.concat([Buffer.from(`${JSON.stringify(head)}\n`), bytes])
  return Buffer.concat([Buffer.from(`${digest('sha256', rest)}\n`), rest])
}

function fromFile(file: Buffer): Stored {
  const [first, second] = [file.indexOf('\n'), file.indexOf('\n', file.indexOf('\n') + 1)]
  const written = createHash('sha256')
    .update(file.subarray(first + 1))
    .digest('hex')
  if (first < 0 || second < 0 || written !== file.toString('latin1', 0, first)) throw new Error('the file is damaged')
  const head = JSON.parse(file.toString('utf8', first + 1, second)) as Omit<Stored, 'bytes'>
  return { ...head, bytes: file.subarray(second + 1) }
}
