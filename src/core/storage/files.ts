import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { Quota } from '../../base/run.ts'
import type { FileStream, Runner, StorageRef } from '../../runner/protocol/messages.ts'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import type { ThreadLocks } from './thread-locks.ts'
import type { TransferPlaces } from './transfer-places.ts'
import type { Volumes } from './volumes.ts'

/** A file or directory that a client requests. */
export interface FileRequest {
  source: 'thread' | 'volume'
  /** ID of the thread, or slug of the volume. */
  id: string
  /** Path relative to the root of the thread or volume. */
  path: string
}

/** A part of a file: from `offset`, at most `lengthBytes`. */
export interface FileRange {
  offset: number
  lengthBytes: number
}

export interface FileStatus {
  isDirectory: boolean
  sizeBytes: number
  modifiedMs: number
}

export interface FileEntry extends FileStatus {
  name: string
}

/** A file that is open for reading. */
export interface OpenFile {
  status: FileStatus
  /** Number of bytes that `bytes` yields, unless the file is truncated in the meantime. */
  lengthBytes: number
  /** The content. The caller must read it once, or call `stop`. */
  bytes: AsyncGenerator<Uint8Array, void, undefined>
  stop(): void
}

/** The capability that each operation requires. */
export const fileNeeds = {
  open: 'files.read',
  stat: 'files.read',
  list: 'files.read',
  requireWritable: 'files.write',
  write: 'files.write',
  delete: 'files.write',
} as const

/** Pattern of a thread ID. An ID is part of a path on the host, so it starts with a letter or digit. */
const threadIds = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/

/** Checks a thread ID. @param field name of the argument in the refusal. @throws Refusal invalid_argument. */
export function checkThreadId(field: string, id: string): void {
  if (threadIds.test(id)) return
  const shown = JSON.stringify(id.length > 64 ? `${id.slice(0, 64)}…` : id)
  const problem = `must be 1 to 128 letters, digits, ".", "_" and "-", the first a letter or digit; it is ${shown}`
  throw new Refusal('invalid_argument', { field, problem })
}

/**
 * Reads and writes files of threads and volumes. Storage that the profile does not provide is refused; storage of
 * another organization is reported as unknown.
 * @throws Refusal threads_unavailable, thread_unknown, volume_unknown, volume_read_only, path_invalid, path_not_found
 * and others.
 */
export class Files {
  readonly #store: Store
  readonly #runner: Runner
  readonly #volumes: Volumes
  readonly #locks: ThreadLocks
  readonly #places: TransferPlaces

  constructor(store: Store, runner: Runner, volumes: Volumes, locks: ThreadLocks, places: TransferPlaces) {
    this.#locks = locks
    this.#store = store
    this.#runner = runner
    this.#volumes = volumes
    this.#places = places
  }

  /**
   * Opens a file for reading, also while a run is using it.
   * @throws Refusal not_a_file, range_invalid, transfers_full.
   */
  async open(caller: Caller, { path, ...place }: FileRequest, range?: FileRange): Promise<OpenFile> {
    const where = await this.#placeOf(caller, place, 'read')
    const release = await this.#places.enter(caller.keyId)
    try {
      const file: FileStream = await this.#runner.files.read(where, path, range)
      const { status, lengthBytes, bytes } = file
      const stop = () => {
        release()
        file.stop()
      }
      return { status: toStatus(status), lengthBytes, bytes: releasing(bytes, release), stop }
    } catch (error) {
      release()
      throw error
    }
  }

  /** Returns the status of a file or directory. Links and other file types are refused. */
  async stat(caller: Caller, { path, ...place }: FileRequest): Promise<FileStatus> {
    const status = await this.#runner.files.stat(await this.#placeOf(caller, place, 'read'), path)
    if (status.kind !== 'file' && status.kind !== 'directory')
      throw new Refusal('not_a_file', { path, kind: status.kind })
    return toStatus(status)
  }

  /** Lists a page of a directory, in the order of the disk. @throws Refusal not_a_directory. */
  async list(
    caller: Caller,
    { path, ...place }: FileRequest,
    page: { cursor?: string; limit: number },
  ): Promise<{ entries: FileEntry[]; nextCursor: string | null }> {
    const listing = await this.#runner.files.list(await this.#placeOf(caller, place, 'read'), path, page)
    const shown = listing.entries.filter(({ kind }) => kind === 'file' || kind === 'directory')
    const entries = shown.map((entry) => ({ name: entry.name, ...toStatus(entry) }))
    return { entries, nextCursor: listing.cursor ?? null }
  }

  /** Checks early whether a file can be written. @throws Refusal if `write` would be refused regardless of the content. */
  async requireWritable(caller: Caller, { path, ...place }: FileRequest): Promise<void> {
    const where = await this.#placeOf(caller, place, 'write')
    if (path === '') throw new Refusal('not_a_file', { path: 'The root', kind: 'directory' })
    try {
      const { kind } = await this.#runner.files.stat(where, path)
      if (kind !== 'file') throw new Refusal('not_a_file', { path, kind })
    } catch (error) {
      // Writing creates the thread, the directories and the file.
      const isMissing = error instanceof Refusal && ['thread_unknown', 'path_not_found'].includes(error.code)
      if (!isMissing) throw error
    }
  }

  /**
   * Writes a file atomically. Creates missing directories, and the thread if it does not exist.
   * @returns its size in bytes.
   * @throws Refusal thread_busy while a run uses the thread, storage_full, transfers_full; errors of the source.
   */
  async write(
    caller: Caller,
    { path, ...place }: FileRequest,
    source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<number> {
    const where = await this.#placeOf(caller, place, 'write')
    const release = await this.#places.enter(caller.keyId)
    try {
      return await this.#write(caller, where, path, source)
    } finally {
      release()
    }
  }

  async #write(
    caller: Caller,
    where: StorageRef,
    path: string,
    source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<number> {
    const { storage } = caller.profile
    if (where.area === 'volumes' || storage.kind === 'none') return this.#runner.files.write(where, path, source)
    await this.#locks.giveUp(caller.orgId, where.name)
    await this.#use(caller, where.name, storage.quota)
    await this.#runner.storage.create(where, storage.quota)
    const bytes = await this.#runner.files.write(where, path, source)
    // Updates the time of last use, and restores the row if the thread was deleted before the first byte arrived.
    await this.#use(caller, where.name, storage.quota)
    return bytes
  }

  /**
   * Deletes files and directories, in this order.
   * @returns the number of deleted entries.
   * @throws Refusal thread_busy, directory_not_empty; partly_deleted if entries were deleted before the error.
   */
  async delete(
    caller: Caller,
    { paths, ...place }: Omit<FileRequest, 'path'> & { paths: readonly string[] },
    recursive: boolean,
  ): Promise<number> {
    let deleted = 0
    for (const path of paths) {
      for (let isComplete = false; !isComplete; ) {
        const { entries, complete } = await this.#deleteSome(caller, { ...place, path }, recursive, deleted)
        deleted += entries
        isComplete = complete || entries === 0
      }
    }
    return deleted
  }

  async #deleteSome(caller: Caller, { path, ...place }: FileRequest, recursive: boolean, deletedBefore: number) {
    try {
      const where = await this.#placeOf(caller, place, 'write')
      if (where.area === 'threads') await this.#locks.giveUp(caller.orgId, where.name)
      return await this.#runner.files.delete(where, path, recursive)
    } catch (error) {
      if (deletedBefore === 0 || !(error instanceof Refusal)) throw error
      throw new Refusal('partly_deleted', { deleted: deletedBefore, path, problem: error.message })
    }
  }

  /**
   * Creates a thread, or updates the time of its last use.
   * @throws Refusal thread_busy while the thread is being removed, limit_reached.
   */
  async #use({ orgId, profile }: Caller, id: string, quota: Quota): Promise<void> {
    const asked = { orgId, id, profile: profile.name, quotaBytes: quota.bytes }
    const isNew = (await this.#store.threads.get(orgId, id)) === undefined
    if (!(await this.#store.threads.use(asked, timestamp()))) throw new Refusal('thread_busy', { thread: id })
    if (isNew) await this.#store.sync()
  }

  async #placeOf(
    caller: Caller,
    { source, id }: Omit<FileRequest, 'path'>,
    how: 'read' | 'write',
  ): Promise<StorageRef> {
    if (source === 'volume') return this.#volumes.reach(caller, id, how)
    if (caller.profile.storage.kind === 'none') throw new Refusal('threads_unavailable')
    checkThreadId('id', id)
    return { area: 'threads', org: caller.orgId, name: id }
  }
}

/** Yields bytes, and calls `release` at the end. */
async function* releasing(bytes: OpenFile['bytes'], release: () => void): OpenFile['bytes'] {
  try {
    yield* bytes
  } finally {
    release()
  }
}

const toStatus = (status: { kind: string; sizeBytes: number; modifiedMs: number }): FileStatus => ({
  isDirectory: status.kind === 'directory',
  sizeBytes: status.sizeBytes,
  modifiedMs: status.modifiedMs,
})
