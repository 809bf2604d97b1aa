import { createHash } from 'node:crypto'
import type { FileHandle } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { LRUCache } from 'lru-cache'
import {
  type CachedManager,
  cachedManagers,
  type PackageCacheSettings,
  type PackageCacheTotals,
  type PackageOutcome,
  type PackageTotals,
} from '../../base/package-cache.ts'
import { NetworkRefused } from '../decision.ts'
import { FairLookups } from '../fair-lookups.ts'
import type { Surroundings } from '../surroundings.ts'
import { type ArchivePath, archivePath, DebianArchive } from './debian-archive.ts'
import { Download, type Wanted } from './download.ts'
import type { Checksum, IndexFile } from './index-document.ts'
import { IndexReader } from './index-reader.ts'
import { Indexes, type Variant } from './indexes.ts'
import { PackageProblem } from './problem.ts'
import { PackageStore } from './store.ts'
import { Upstream } from './upstream.ts'

/**
 * A file up to this size is compared with its checksum before its first byte is sent, once by each process: a damaged one is then
 * downloaded again. The others are compared while they are sent, without their last piece.
 */
const comparedFirstBytes = 64 * 1024 * 1024
const pieceBytes = 64 * 1024
/** Documents that clients of one organization have not read yet; further ones are answered with 503. */
const unreadMaxBytes = 128 * 1024 * 1024
const shortForm = 'application/vnd.npm.install-v1+json'

const projectPattern = /^[a-z0-9](?:[a-z0-9-]{0,126}[a-z0-9])?$/
const npmPattern = /^(?=.{1,214}$)(?:@[a-z0-9~][a-z0-9~._-]*\/)?[a-z0-9~][a-z0-9~._-]*$/i

/** The answer to a request of a program. */
export interface PackageAnswer {
  status: number
  headers: Record<string, string | number>
  /** Ends with an error when the file turns out to be another one. The caller reads or destroys it. */
  body: Readable
  /** Counts bytes of the body that were passed on. */
  count: (bytes: number) => void
}

interface Source {
  upstream: Upstream
  indexes: Indexes
  archive: DebianArchive
  totals: PackageTotals
}

/** An answer, and how it is counted. */
type Answered = Omit<PackageAnswer, 'count'> & { outcome: PackageOutcome }

/**
 * Serves the packages of indexes that the operator configured, and keeps them. What it keeps was compared with the checksum that
 * the index gave, and nothing of a request except the name of a package and file reaches the index.
 */
export class PackageCache {
  readonly #store: PackageStore
  readonly #reader = new IndexReader()
  readonly #sources = new Map<CachedManager, Source>()
  readonly #fair = new FairLookups('too many packages are requested by this organization')
  readonly #downloads = new Map<string, Download>()
  /** Keys of files that this process has compared. */
  readonly #compared = new LRUCache<string, true>({ max: 10_000 })
  /** Bytes of documents by organization. */
  readonly #unread = new Map<string, number>()

  /** @throws Error when its directory cannot be used. */
  constructor(settings: PackageCacheSettings, surroundings: Pick<Surroundings, 'isOwn' | 'roots'>) {
    this.#store = new PackageStore(settings.directory, settings.sizeBytes, settings.reserveBytes)
    for (const manager of cachedManagers) {
      const address = settings.upstreams[manager]
      if (address === undefined) continue
      const upstream = new Upstream(address, settings.allow, surroundings)
      const indexes = new Indexes(manager, upstream, this.#store, this.#reader)
      this.#sources.set(manager, { upstream, indexes, archive: new DebianArchive(indexes), totals: newTotals() })
    }
  }

  /** What it contains, and what it did since it was opened. */
  get totals(): PackageCacheTotals {
    const managers = [...this.#sources].map(([manager, { totals, upstream }]) => [
      manager,
      { ...totals, fetchedBytes: upstream.fetchedBytes },
    ])
    return { ...this.#store.figures, managers: Object.fromEntries(managers) }
  }

  /**
   * Answers one request.
   * @param path with its query. @param accept the header. @param orgId whose requests wait for each other.
   * @param gone aborts when the program does not wait any more, and after the answer was read.
   * @throws Error when it does not.
   */
  async answer(method: string, path: string, accept: string, orgId: string, gone: AbortSignal): Promise<PackageAnswer> {
    const asked = askedFor(path)
    const source = asked && this.#sources.get(asked.manager)
    const { outcome, ...answer } = await this.#answered(source, asked, { method, path, accept, orgId, gone })
    const totals = source?.totals ?? newTotals()
    totals.requests[outcome] = (totals.requests[outcome] ?? 0) + 1
    const count = (bytes: number) => {
      totals.servedBytes += bytes
    }
    return { ...answer, count }
  }

  async close(): Promise<void> {
    this.#reader.close()
    await Promise.all([...this.#sources.values()].map(({ upstream }) => upstream.close()))
  }

  async #answered(source: Source | undefined, asked: Asked | undefined, request: AskedBy): Promise<Answered> {
    try {
      if (request.method !== 'GET' && request.method !== 'HEAD')
        throw new PackageProblem(405, 'the package cache answers GET and HEAD only')
      if (asked === undefined || source === undefined)
        throw new PackageProblem(404, 'the package cache has no such page: it serves packages of configured indexes')
      return asked.manager === 'apt'
        ? await this.#fromArchive(source, asked, request)
        : await this.#fromIndex(source, asked, request)
    } catch (error) {
      if (error instanceof PackageProblem) return textAnswer(error.status, error.message)
      if (error instanceof NetworkRefused) return textAnswer(503, error.message)
      throw error
    }
  }

  async #fromIndex(source: Source, asked: AskedPackage, request: AskedBy): Promise<Answered> {
    const { method, path, accept, orgId, gone } = request
    const { manager, name, file } = asked
    if (manager === 'pip' && file === undefined && !path.split('?', 1)[0]!.endsWith('/'))
      return { ...textAnswer(301, 'it is a directory'), headers: { location: `/pip/${name}/` } }
    const isShort = file !== undefined || accept.includes(shortForm)
    const variant: Variant = manager === 'pip' ? 'page' : isShort ? 'install' : 'full'
    const upstreamPath = manager === 'pip' ? `${name}/` : name.replace('/', '%2f')
    const index = await source.indexes.get(name, `./${upstreamPath}`, variant, orgId)
    if (file === undefined) {
      const type = manager === 'pip' ? 'text/html; charset=utf-8' : isShort ? shortForm : 'application/json'
      return this.#document(index.body, type, orgId, gone)
    }
    const found = index.files.get(file)
    if (found === undefined) throw new PackageProblem(404, 'the index does not list this file')
    if (method === 'HEAD')
      return { status: 200, headers: fileHeaders(undefined), body: Readable.from([]), outcome: 'document' }
    return this.#file(source.upstream, found, orgId, gone)
  }

  /** Answers with what an archive has. Programs verify its signatures, so its documents stay as they are. */
  async #fromArchive(
    { upstream, indexes, archive }: Source,
    { path, encoded, kind, checksum: named, list }: ArchivePath,
    { method, orgId, gone }: AskedBy,
  ): Promise<Answered> {
    let answer: Answered
    if (kind === 'document') {
      const { body } = await indexes.get(path, `./${encoded}`, 'unchanged', orgId)
      answer = this.#document(body, 'application/octet-stream', orgId, gone)
    } else {
      if (method === 'HEAD') throw new PackageProblem(405, 'files of an archive are answered to GET only')
      const checksum = kind === 'pool' ? await archive.checksumOf(path, orgId) : named
      const { href } = new URL(`./${encoded}`, upstream.base)
      answer = await this.#file(upstream, { url: href, ...(checksum && { checksum }) }, orgId, gone)
    }
    if (list !== undefined) archive.uses(orgId, list)
    return answer
  }

  #document(bytes: Uint8Array, type: string, orgId: string, gone: AbortSignal): Answered {
    const unread = this.#unread.get(orgId) ?? 0
    if (unread > 0 && unread + bytes.length > unreadMaxBytes)
      throw new PackageProblem(503, 'too many documents of package indexes are being sent to this organization')
    gone.throwIfAborted()
    this.#unread.set(orgId, unread + bytes.length)
    const read = () => {
      const rest = (this.#unread.get(orgId) ?? 0) - bytes.length
      if (rest > 0) this.#unread.set(orgId, rest)
      else this.#unread.delete(orgId)
    }
    gone.addEventListener('abort', read, { once: true })
    return {
      status: 200,
      headers: { 'content-type': type, 'content-length': bytes.length },
      body: Readable.from([bytes]),
      outcome: 'document',
    }
  }

  async #file(upstream: Upstream, { url, checksum }: IndexFile, orgId: string, gone: AbortSignal): Promise<Answered> {
    const key = checksum && `${checksum.algorithm}-${checksum.hex}`
    const kept = key && checksum && (await this.#kept(key, checksum, gone))
    if (kept) return kept
    const wanted = { url, ...(checksum && { checksum }), ...(key && { key }) }
    const { download, pieces } = await this.#follow(upstream, wanted, orgId, gone)
    const headers = fileHeaders(download.lengthBytes)
    return { status: 200, headers, body: readableOf(pieces), outcome: 'downloaded' }
  }

  /** Follows the download of a file, or begins it; it takes its place until it has ended. */
  async #follow(upstream: Upstream, wanted: Wanted, orgId: string, gone: AbortSignal): Promise<Followed> {
    // Two indexes may give the same checksum; only what was compared with it is shared by both.
    const place = `${wanted.key ?? ''} ${wanted.url}`
    const join = (download: Download) => ({ download, following: download.follow(gone) })
    const known = this.#downloads.get(place)
    const { download, following } = known?.isJoinable
      ? join(known)
      : await new Promise<ReturnType<typeof join>>((resolve, reject) => {
          const work = async () => {
            const other = this.#downloads.get(place)
            if (other?.isJoinable) return resolve(join(other))
            const download = new Download(this.#store, upstream, wanted)
            this.#downloads.set(place, download)
            resolve(join(download))
            await download.ended
            if (this.#downloads.get(place) === download) this.#downloads.delete(place)
          }
          this.#fair.run(orgId, work).catch(reject)
        })
    return { download, pieces: await following }
  }

  async #kept(key: string, checksum: Checksum, gone: AbortSignal): Promise<Answered | undefined> {
    const file = await this.#store.read(key)
    if (file === undefined) return undefined
    const { handle, bytes } = file
    const close = () => void handle.close().catch(() => undefined)
    if (gone.aborted) close()
    else gone.addEventListener('abort', close, { once: true })
    if (bytes <= comparedFirstBytes && !this.#compared.has(key)) {
      if (!(await hasChecksum(handle, bytes, checksum))) {
        this.#store.remove(key)
        return undefined
      }
      this.#compared.set(key, true)
    }
    const damaged = () => {
      this.#compared.delete(key)
      this.#store.remove(key)
    }
    const body = readableOf(compared(handle, bytes, checksum, damaged))
    return { status: 200, headers: fileHeaders(bytes), body, outcome: 'kept' }
  }
}

const newTotals = (): PackageTotals => ({ requests: {}, servedBytes: 0, fetchedBytes: 0 })

interface Followed {
  download: Download
  pieces: AsyncGenerator<Buffer, void, undefined>
}

async function hasChecksum(handle: FileHandle, bytes: number, checksum: Checksum): Promise<boolean> {
  let isDamaged = false
  try {
    for await (const _ of compared(handle, bytes, checksum, () => (isDamaged = true)));
  } catch (error) {
    if (isDamaged) return false
    throw error
  }
  return true
}

/** Reads a kept file; its last piece only when all of it has its checksum. */
async function* compared(
  handle: FileHandle,
  bytes: number,
  { algorithm, hex }: Checksum,
  damaged: () => void,
): AsyncGenerator<Buffer, void, undefined> {
  const hash = createHash(algorithm)
  // An empty file is read too.
  for (let at = 0; at < Math.max(1, bytes); ) {
    const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(pieceBytes), 0, pieceBytes, at)
    const piece = buffer.subarray(0, bytesRead)
    hash.update(piece)
    at += bytesRead
    if (bytesRead === 0 || (at >= bytes && hash.digest('hex') !== hex)) {
      damaged()
      throw new Error('a file of the package cache is damaged')
    }
    yield piece
  }
}

function readableOf(pieces: AsyncGenerator<Buffer, void, undefined>): Readable {
  return Readable.from(pieces, { objectMode: false, highWaterMark: pieceBytes })
}

interface AskedPackage {
  manager: 'pip' | 'npm'
  name: string
  /** Absent: the document of the package. */
  file: string | undefined
}

/** A request, and for whom it is. */
interface AskedBy {
  method: string
  path: string
  accept: string
  orgId: string
  gone: AbortSignal
}

type Asked = AskedPackage | ({ manager: 'apt' } & ArchivePath)

/** BOUNDARY: parses the path of a request. @returns undefined for none that the cache answers. */
function askedFor(path: string): Asked | undefined {
  let words: string[]
  try {
    words = path.split('?', 1)[0]!.split('/').slice(1).map(decodeURIComponent)
  } catch {
    return undefined
  }
  const [manager, ...rest] = words
  if (manager === 'pip') {
    const [project = '', file, ...more] = rest
    const name = project.toLowerCase().replace(/[-_.]+/g, '-')
    return projectPattern.test(name) && more.length === 0 ? { manager, name, file: file || undefined } : undefined
  }
  if (manager === 'apt') {
    const asked = archivePath(rest)
    return asked && { manager, ...asked }
  }
  if (manager !== 'npm') return undefined
  const mark = rest.indexOf('-')
  const name = (mark < 0 ? rest : rest.slice(0, mark)).join('/')
  const file = mark < 0 ? undefined : rest[mark + 1]
  if (!npmPattern.test(name) || (mark >= 0 && (file === undefined || rest.length !== mark + 2))) return undefined
  return { manager, name, file }
}

const fileHeaders = (lengthBytes: number | undefined): Record<string, string | number> => ({
  'content-type': 'application/octet-stream',
  ...(lengthBytes !== undefined && { 'content-length': lengthBytes }),
})

function textAnswer(status: number, text: string): Answered {
  const body = Buffer.from(`${text}\n`)
  const headers = { 'content-type': 'text/plain; charset=utf-8', 'content-length': body.length }
  const outcome = status < 400 ? 'document' : status < 500 ? 'absent' : 'failed'
  return { status, headers, body: Readable.from([body]), outcome }
}
