import { AsyncQueue } from '../../base/async-queue.ts'
import { Credit } from '../../base/credit.ts'
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
import { type FromRunner, fileWindowBytes, type ToRunner } from '../protocol/messages.ts'
import { kept, WireError } from '../protocol/wire.ts'
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

/** A read or write in progress, which receives the messages about it. */
interface FileFlow {
  take(message: FilesMessage, payload: Buffer): void
  stop(): void
}

/** Whose files they are decides when they may be changed. */
type Area = Pick<ThreadClaims | VolumeClaims, 'reading' | 'writing'>

/** What a front asks of the files of threads and volumes. Memory is bounded by the windows, whatever the size of a file. */
export class FileRequests {
  readonly #storage: OpenStorage | undefined
  readonly #send: (message: FromRunner) => void
  readonly #sendLarge: (message: FromRunner, bytes?: Uint8Array) => Promise<void>
  readonly #refuse: (request: number, error: unknown) => void
  readonly #flows = new Map<number, FileFlow>()
  readonly #streams = new FairQueue(streams)
  readonly #stopping = new AbortController()
  #pending = 0

  /**
   * @param storage absent if the runner has no storage.
   * @param sendLarge resolves when the connection has taken it, or is gone.
   * @param refuse answers a request with what went wrong.
   */
  constructor(
    storage: OpenStorage | undefined,
    send: (message: FromRunner) => void,
    sendLarge: (message: FromRunner, bytes?: Uint8Array) => Promise<void>,
    refuse: (request: number, error: unknown) => void,
  ) {
    this.#storage = storage
    this.#send = send
    this.#sendLarge = sendLarge
    this.#refuse = refuse
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
      this.#refuse(request, new Refusal('files_busy', { retryAfterSeconds }))
      return
    }
    this.#pending += 1
    this.#answer(message)
      .catch((error: unknown) => this.#refuse(request, error))
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
        await this.#sendLarge({
          type: 'files_listing',
          request,
          listing: { ...listing, ...(next !== undefined && { cursor: next }) },
        })
        return
      }
      case 'files_stat': {
        const status = await area.reading(where, (root) => statPath(root, message.path))
        this.#send({ type: 'files_status', request, status })
        return
      }
      case 'files_read':
        return this.#read(area, message)
      case 'files_write':
        return this.#write(area, message)
      case 'files_make_directory':
        await this.#storage?.watch.requireFor(where.org)
        await area.writing(where, (root) => makeDirectory(root, message.path))
        this.#send({ type: 'ok', request })
        return
      case 'files_move':
        await area.writing(where, (root) => movePath(root, message.from, message.to, message.mayReplace))
        this.#send({ type: 'ok', request })
        return
      case 'files_delete': {
        const deleted = await area.writing(where, (root) => deletePath(root, message.path, message.recursive))
        this.#send({ type: 'files_deleted', request, deleted })
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
    if (!reading.stopped) this.#send({ type: 'files_end', request })
  }

  async #sendFile(root: number, request: number, path: string, range: Range | undefined, reading: Reading) {
    const file: OpenFile = await readFile(root, path, range)
    try {
      this.#send({ type: 'files_opened', request, status: file.status, lengthBytes: file.lengthBytes })
      for await (const bytes of file.bytes) {
        if (!(await reading.credit.spend(bytes.length))) return
        await this.#sendLarge({ type: 'files_bytes', request }, bytes)
      }
    } finally {
      await file.close()
    }
  }

  async #write(area: Area, { request, where, path }: Ask<'files_write'>): Promise<void> {
    const writing = new Writing((bytes) => this.#send({ type: 'files_room', request, bytes }))
    this.#flows.set(request, writing)
    await this.#storage?.watch.requireFor(where.org)
    const place = await this.#place(where.org)
    const unwatch = this.#storage?.watch.add({
      id: where,
      stop: () => writing.refuse(new Refusal('disk_unavailable', { problem: 'its disk is nearly full' })),
    })
    try {
      const bytes = await area.writing(where, (root) => writeFile(root, path, writing.bytes()))
      this.#send({ type: 'files_written', request, bytes })
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

const givenUp = new Refusal('unavailable', { reason: 'the file was given up' })

/** A file that is being read, at the speed of its reader. */
class Reading implements FileFlow {
  stopped = false
  readonly credit = new Credit(fileWindowBytes)

  take(message: FilesMessage): void {
    if (message.type !== 'files_more') throw new WireError('bytes for a file that is being read')
    this.credit.add(message.bytes)
  }

  stop(): void {
    this.stopped = true
    this.credit.close()
  }
}

/** A file that is being written, as it arrives. */
class Writing implements FileFlow {
  readonly #grant: (bytes: number) => void
  readonly #arrived = new AsyncQueue<Buffer>({ capacity: fileWindowBytes, sizeOf: (piece) => piece.length })
  #grantedBytes = 0
  #end: 'finished' | Refusal | undefined

  constructor(grant: (bytes: number) => void) {
    this.#grant = grant
  }

  take(message: FilesMessage, payload: Buffer): void {
    if (message.type === 'files_bytes') this.#push(payload)
    else if (message.type !== 'files_finish') throw new WireError('room for a file that is being written')
    else {
      this.#end ??= 'finished'
      this.#arrived.close()
    }
  }

  stop(): void {
    if (this.#end === undefined) this.refuse(givenUp)
  }

  /** Ends the write without effect. */
  refuse(refusal: Refusal): void {
    this.#end = refusal
    this.#arrived.discard()
  }

  #push(payload: Buffer): void {
    if (this.#end instanceof Refusal) return // On their way when it was stopped.
    this.#grantedBytes -= payload.length
    if (this.#grantedBytes < 0 || this.#end) throw new WireError('more of a file than there was room for')
    this.#arrived.push(kept(payload))
  }

  /** In order, to the end. @throws Refusal when the front gives the file up: then nothing is written. */
  async *bytes(): AsyncGenerator<Uint8Array, void, undefined> {
    this.#give(fileWindowBytes)
    for await (const piece of this.#arrived) {
      yield piece
      this.#give(piece.length)
    }
    if (this.#end instanceof Refusal) throw this.#end
  }

  #give(bytes: number): void {
    this.#grantedBytes += bytes
    this.#grant(bytes)
  }
}
