import { LRUCache } from 'lru-cache'
import { checksumIn } from './debian-index.ts'
import { type Checksum, checksumOf, type ReadIndex } from './index-document.ts'
import type { Indexes } from './indexes.ts'
import { PackageProblem } from './problem.ts'

/** What a program asks of an archive. */
export interface ArchivePath {
  /** Below the archive, as lists write it. */
  path: string
  /** The same in an address. */
  encoded: string
  /** A document of the archive that can change, a file with a checksum in its name, or a file that lists name. */
  kind: 'document' | 'by-hash' | 'pool'
  /** By the name of a file by hash. Absent: its algorithm is too weak. */
  checksum?: Checksum
  /** Present in a document or file by hash beside which there is such a list, without an extension. */
  list?: string
}

const segmentPattern = /^[A-Za-z0-9_][A-Za-z0-9._+~:%=@,-]{0,254}$/
const segmentsMax = 16
/** Lists in which files of one organization are searched: those of several suites with their components. */
const listsPerOrg = 32
const orgsMax = 1024

/** BOUNDARY: parses a path. @param segments decoded. @returns undefined for none that the cache answers. */
export function archivePath(segments: readonly string[]): ArchivePath | undefined {
  if (segments.length < 2 || segments.length > segmentsMax) return undefined
  if (!segments.every((segment) => segmentPattern.test(segment))) return undefined
  const [top] = segments
  const is = { path: segments.join('/'), encoded: segments.map(encodeURIComponent).join('/') }
  if (top === 'pool') return { ...is, kind: 'pool' }
  if (top !== 'dists') return undefined
  const mark = segments.indexOf('by-hash')
  const directory = segments.slice(0, mark < 0 ? -1 : mark)
  const list = directory.at(-1) === 'source' ? 'Sources' : /^binary-/.test(directory.at(-1)!) ? 'Packages' : undefined
  const beside = list === undefined ? {} : { list: [...directory.map(encodeURIComponent), list].join('/') }
  if (mark < 0) return { ...is, ...beside, kind: 'document' }
  const [algorithm = '', hex = '', ...more] = segments.slice(mark + 1)
  if (hex === '' || more.length > 0) return undefined
  const checksum = checksumOf({ [algorithm.toLowerCase()]: hex })
  return { ...is, ...beside, ...(checksum && { checksum }), kind: 'by-hash' }
}

/** The lists of a Debian archive, as organizations have requested them. */
export class DebianArchive {
  readonly #indexes: Indexes
  /** By organization, the last one first. */
  readonly #lists = new LRUCache<string, readonly string[]>({ max: orgsMax })

  constructor(indexes: Indexes) {
    this.#indexes = indexes
  }

  /** Notes that an organization uses a list, in which its files are searched from then on. */
  uses(orgId: string, list: string): void {
    const others = (this.#lists.get(orgId) ?? []).filter((other) => other !== list)
    this.#lists.set(orgId, [list, ...others].slice(0, listsPerOrg))
  }

  /**
   * Returns the checksum of a file in the lists that an organization uses, or undefined where none names it. A list that cannot
   * be read is used again when it is requested again.
   * @throws NetworkRefused when the organization requests too many documents.
   */
  async checksumOf(path: string, orgId: string): Promise<Checksum | undefined> {
    for (const list of this.#lists.get(orgId) ?? []) {
      const index = await this.#read(list, orgId)
      const found = index && checksumIn(index, path)
      if (found) return found
      if (index) continue
      const others = (this.#lists.get(orgId) ?? []).filter((other) => other !== list)
      this.#lists.set(orgId, others)
    }
    return undefined
  }

  /** Reads a list: not in the form that a program chose, which may be compressed with xz. */
  async #read(list: string, orgId: string): Promise<ReadIndex | undefined> {
    for (const form of [`${list}.gz`, list]) {
      try {
        return await this.#indexes.get(form, `./${form}`, 'list', orgId)
      } catch (error) {
        if (!(error instanceof PackageProblem)) throw error
      }
    }
    return undefined
  }
}
