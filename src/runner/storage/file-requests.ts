import { Refusal } from '../../base/errors.ts'
import { FairQueue, type Place } from '../../engine/slots/queue.ts'
import { deletePath } from '../../storage/deletion.ts'
import {
  makeDirectory,
  movePath,
  type OpenFile,
  type Range,
  readFile,
  statPath,
  writeFile,
} from '../../storage/files.ts'
import { listDirectory } from '../../storage/listing.ts'
import { parsePath } from '../../storage/paths.ts'
import type { FrontLink } from '../front-link.ts'
import type { ToRunner } from '../protocol/messages.ts'
import { WireError } from '../protocol/wire.ts'
import { type FileFlows, Reading, Writing } from './file-flows.ts'
import type { OpenStorage } from './storage.ts'
import type { ThreadClaims } from './thread-claims.ts'
import type { VolumeClaims } from './volume-claims.ts'

export type FilesMessage = Extract<ToRunner, { type: `files_${string}` }>
type Asking = Extract<FilesMessage, { where: unknown }>
type Ask<Type extends Asking['type']> = Extract<Asking, { type: Type }>

/**
 * Reads and writes of one front at once; what they hold together stays below what a connection may leave unread. The
 * others wait for their turn, so that a client that asks for many gets them all, and takes no other org's turn. Two orgs
 * that hold as many as they may leave the reserved places to others.
 */
const streams = { places: 32, placesPerOrg: 16, reserved: 8, waitingPerOrg: 256, waitMs: 30_000 }
/** Requests about files of one front at once, those that wait included. */
const pendingMax = 1_024
const retryAfterSeconds = 1

/** Whose files they are decides when they may be changed. */
type Area = Pick<ThreadClaims | VolumeClaims, 'reading' | 'writing'>

/** What a front asks of the files of threads and volumes. Memory is bounded by the windows, whatever the size of a file. */
export class FileRequests {
  readonly #storage: OpenStorage | undefined
  readonly #link: FrontLink
  readonly #flows: FileFlows
  readonly #streams = new FairQueue(streams)
  readonly #stopping = new AbortController()
  #pending = 0

  /**
   * @param storage absent if the runner has no storage.
   * @param flows shared with other requests of the connection.
   */
  constructor(storage: OpenStorage | undefined, flows: FileFlows, link: FrontLink) {
    this.#storage = storage
    this.#flows = flows
    this.#link = link
  }

  /** BOUNDARY. @throws WireError for what no front in order would send. */
  handle(message: FilesMessage, payload: Buffer): void {
    switch (message.type) {
      case 'files_bytes':
      case 'files_finish':
      case 'files_more':
        this.#flows.get(message.request)?.take(message, payload)
        return
      case 'files_stop':
        this.#flows.get(message.request)?.stop()
        return
      default:
        this.#begin(message)
    }
  }

  /** The front is gone: reads end, writes leave nothing. */
  stop(): void {
    this.#stopping.abort(new Refusal('unavailable', { reason: 'the front is gone' }))
    for (const flow of this.#flows.values()) flow.stop()
  }

  #begin(message: Asking): void {
    const { request } = message
    if (this.#flows.has(request)) throw new WireError('two requests of one number')
    if (this.#pending >= pendingMax) {
      this.#link.refuse(request, new Refusal('files_busy', { retryAfterSeconds }))
      return
    }
    this.#pending += 1
    this.#answer(message)
      .catch((error: unknown) => this.#link.refuse(request, error))
      .finally(() => {
        this.#pending -= 1
        this.#flows.delete(request)
      })
  }

  async #answer(message: Asking): Promise<void> {
    const { request, where } = message
    // A malformed path is refused as such also where the thread does not exist.
    if ('path' in message) parsePath(message.path)
    const area = this.#storage?.[where.area]
    if (!area) throw new Refusal('storage_unavailable')
    switch (message.type) {
      case 'files_list': {
        const { path, cursor, limit } = message
        const { cursor: next, ...listing } = await area.reading(where, (root) =>
          listDirectory(root, path, cursor, limit),
        )
        await this.#link.sendLarge({
          type: 'files_listing',
          request,
          listing: { ...listing, ...(next !== undefined && { cursor: next }) },
        })
        return
      }
      case 'files_stat': {
        const status = await area.reading(where, (root) => statPath(root, message.path))
        this.#link.send({ type: 'files_status', request, status })
        return
      }
      case 'files_read':
        return this.#read(area, message)
      case 'files_write':
        return this.#write(area, message)
      case 'files_make_directory':
        await this.#storage?.watch.requireFor(where.org)
        await area.writing(where, (root) => makeDirectory(root, message.path))
        this.#link.send({ type: 'ok', request })
        return
      case 'files_move':
        await area.writing(where, (root) => movePath(root, message.from, message.to, message.mayReplace))
        this.#link.send({ type: 'ok', request })
        return
      case 'files_delete': {
        const deleted = await area.writing(where, (root) => deletePath(root, message.path, message.recursive))
        this.#link.send({ type: 'files_deleted', request, deleted })
        return
      }
    }
  }

  async #read(area: Area, { request, where, path, range }: Ask<'files_read'>): Promise<void> {
    const reading = new Reading()
    this.#flows.set(request, reading)
    const place = await this.#place(where.org)
    try {
      if (!reading.stopped) await area.reading(where, (root) => this.#sendFile(root, request, path, range, reading))
    } finally {
      place.release()
    }
    if (!reading.stopped) this.#link.send({ type: 'files_end', request })
  }

  async #sendFile(root: number, request: number, path: string, range: Range | undefined, reading: Reading) {
    const file: OpenFile = await readFile(root, path, range)
    try {
      this.#link.send({ type: 'files_opened', request, status: file.status, lengthBytes: file.lengthBytes })
      for await (const bytes of file.bytes) {
        if (!(await reading.credit.spend(bytes.length))) return
        await this.#link.sendLarge({ type: 'files_bytes', request }, bytes)
      }
    } finally {
      await file.close()
    }
  }

  async #write(area: Area, { request, where, path }: Ask<'files_write'>): Promise<void> {
    const writing = new Writing((bytes) => this.#link.send({ type: 'files_room', request, bytes }))
    this.#flows.set(request, writing)
    await this.#storage?.watch.requireFor(where.org)
    const place = await this.#place(where.org)
    const unwatch = this.#storage?.watch.add({
      id: where,
      stop: () => writing.refuse(new Refusal('disk_unavailable', { problem: 'its disk is nearly full' })),
    })
    try {
      const bytes = await area.writing(where, (root) => writeFile(root, path, writing.bytes()))
      this.#link.send({ type: 'files_written', request, bytes })
    } finally {
      unwatch?.()
      place.release()
    }
  }

  /** @throws Refusal files_busy. */
  async #place(org: string): Promise<Place> {
    try {
      return await this.#streams.enter(org, this.#stopping.signal)
    } catch (error) {
      throw error instanceof Refusal && (error.code === 'queue_full' || error.code === 'queue_timeout')
        ? new Refusal('files_busy', { retryAfterSeconds })
        : error
    }
  }
}
