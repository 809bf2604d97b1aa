import { Refusal } from '../../base/errors.ts'
import type { FileChange, SandboxFile } from '../../base/sandbox.ts'
import type { SandboxFiles as RunnerSandboxFiles } from '../../runner/protocol/sandboxes.ts'
import type { SandboxRow } from '../../store/sandbox-rows.ts'
import type { Caller } from '../caller.ts'
import type { TransferPlaces } from '../storage/transfer-places.ts'
import type { SandboxLifecycle } from './lifecycle.ts'
import type { SandboxRef } from './names.ts'
import { findSandbox } from './sandbox-rows.ts'

/** The capability that each operation requires. */
export const sandboxFileNeeds = {
  stat: 'sandboxes.files.read',
  list: 'sandboxes.files.read',
  read: 'sandboxes.files.read',
  watch: 'sandboxes.files.read',
  requireWritable: 'sandboxes.files.write',
  write: 'sandboxes.files.write',
  makeDirectory: 'sandboxes.files.write',
  move: 'sandboxes.files.write',
  copy: 'sandboxes.files.write',
  remove: 'sandboxes.files.write',
} as const

/** A path in a sandbox: absolute, or relative to its working directory. */
export interface SandboxPath {
  path: string
  /** The user whose permissions apply; absent: the user of the sandbox. */
  user?: string | undefined
}

export interface OpenSandboxFile {
  status: SandboxFile
  /** The reader must read or return them. */
  bytes: AsyncGenerator<Uint8Array, void, undefined>
}

type Source = AsyncIterable<Uint8Array> | Iterable<Uint8Array>

/** A sandbox whose files a call uses. */
interface FilesInUse {
  row: SandboxRow
  files: RunnerSandboxFiles
  /** Ends the use; the idle time begins. */
  close(): void
}

const modeMax = 0o777
const listDefault = 200
export const listMax = 1_000

/**
 * Files of running, stopped and crashed sandboxes. The runner accesses them inside of the sandbox, as its user, so that no
 * link leads out of it.
 */
export class SandboxFiles {
  readonly #lifecycle: SandboxLifecycle
  readonly #places: TransferPlaces

  /** @param places limit the concurrent transfers of a key. */
  constructor(lifecycle: SandboxLifecycle, places: TransferPlaces) {
    this.#lifecycle = lifecycle
    this.#places = places
  }

  /** @throws Refusal path_not_found, path_invalid, path_denied, sandbox_unknown, sandbox_not_running while it is paused. */
  stat(caller: Caller, ref: SandboxRef, { path, user }: SandboxPath): Promise<SandboxFile> {
    return this.#with(caller, ref, ({ row, files }) => files.stat(row.id, path, user))
  }

  /** Lists a directory by name. @throws Refusal as `stat`, not_a_directory. */
  list(
    caller: Caller,
    ref: SandboxRef,
    { path, user }: SandboxPath,
    { cursor, limit = listDefault }: { cursor?: string | undefined; limit?: number | undefined } = {},
  ): Promise<{ entries: SandboxFile[]; cursor?: string }> {
    if (!Number.isInteger(limit) || limit < 1 || limit > listMax)
      throw new Refusal('invalid_argument', { field: 'limit', problem: `must be a whole number from 1 to ${listMax}` })
    const page = { limit, ...(cursor && { cursor }) }
    return this.#with(caller, ref, ({ row, files }) => files.list(row.id, path, page, user))
  }

  /** Opens a file, or a part of it. @throws Refusal as `stat`, not_a_file, transfers_full. */
  async read(
    caller: Caller,
    ref: SandboxRef,
    { path, user }: SandboxPath,
    range?: { offset: number; lengthBytes: number },
  ): Promise<OpenSandboxFile> {
    const leave = await this.#places.enter(caller.keyId)
    try {
      const { row, files, close } = await this.#open(caller, ref)
      try {
        const { status, bytes } = await this.#lifecycle.asked(row, () => files.read(row.id, path, range, user))
        return { status, bytes: releasing(bytes, [leave, close]) }
      } catch (error) {
        close()
        throw error
      }
    } catch (error) {
      leave()
      throw error
    }
  }

  /** Checks early, before anything is uploaded. @throws Refusal if `write` would be refused for every file. */
  async requireWritable(caller: Caller, ref: SandboxRef): Promise<void> {
    const { close } = await this.#open(caller, ref)
    close()
  }

  /**
   * Writes a file as a whole, or appends to it. An existing file keeps its mode and its owner, and its content until all of
   * the new one has arrived.
   * @param how `mode`: permission bits of a new file.
   * @returns the number of bytes written.
   * @throws Refusal as `stat`, storage_full, not_a_file, transfers_full, and errors of the source.
   */
  async write(
    caller: Caller,
    ref: SandboxRef,
    { path, user }: SandboxPath,
    source: Source,
    { mode, ...how }: { append?: boolean; mode?: number | undefined; makeParents?: boolean } = {},
  ): Promise<number> {
    checkMode(mode)
    const leave = await this.#places.enter(caller.keyId)
    const options = { ...how, ...(mode !== undefined && { mode }) }
    try {
      return await this.#with(caller, ref, ({ row, files }) => files.write(row.id, path, source, options, user))
    } finally {
      leave()
    }
  }

  /** @param how `parents`: also creates missing parents, and accepts a directory that exists. @throws Refusal path_exists. */
  makeDirectory(
    caller: Caller,
    ref: SandboxRef,
    { path, user }: SandboxPath,
    { parents, mode }: { parents?: boolean | undefined; mode?: number | undefined } = {},
  ): Promise<void> {
    checkMode(mode)
    const how = { ...(parents && { parents }), ...(mode !== undefined && { mode }) }
    return this.#with(caller, ref, ({ row, files }) => files.makeDirectory(row.id, path, how, user))
  }

  /** @param mayReplace whether it replaces what is at `to`. @throws Refusal as `stat`, path_exists. */
  move(caller: Caller, ref: SandboxRef, from: SandboxPath, to: string, mayReplace: boolean): Promise<void> {
    return this.#with(caller, ref, ({ row, files }) => files.move(row.id, from.path, to, mayReplace, from.user))
  }

  /** Copies a file, or a directory with its content. @throws Refusal as `move`, storage_full. */
  copy(caller: Caller, ref: SandboxRef, from: SandboxPath, to: string, mayReplace: boolean): Promise<void> {
    return this.#with(caller, ref, ({ row, files }) => files.copy(row.id, from.path, to, mayReplace, from.user))
  }

  /** @throws Refusal as `stat`, directory_not_empty. */
  remove(caller: Caller, ref: SandboxRef, { path, user }: SandboxPath, recursive: boolean): Promise<void> {
    return this.#with(caller, ref, ({ row, files }) => files.remove(row.id, path, recursive, user))
  }

  /**
   * Follows changes at or below a path of a running sandbox until the signal aborts. Everything is watched when it resolves.
   * @throws Refusal as `stat`, sandbox_not_running, limit_reached.
   */
  async watch(
    caller: Caller,
    ref: SandboxRef,
    { path, user }: SandboxPath,
    recursive: boolean,
    signal: AbortSignal,
  ): Promise<AsyncGenerator<FileChange, void, undefined>> {
    const { row, files, close } = await this.#open(caller, ref, 'running')
    try {
      const changes = await this.#lifecycle.asked(row, () => files.watch(row.id, path, recursive, user))
      const leave = () => void changes.return?.()
      if (signal.aborted) leave()
      signal.addEventListener('abort', leave, { once: true })
      return releasing(changes, [close, () => signal.removeEventListener('abort', leave)])
    } catch (error) {
      close()
      throw error
    }
  }

  async #with<Result>(caller: Caller, ref: SandboxRef, work: (used: FilesInUse) => Promise<Result>): Promise<Result> {
    const used = await this.#open(caller, ref)
    try {
      return await this.#lifecycle.asked(used.row, () => work(used))
    } finally {
      used.close()
    }
  }

  async #open(caller: Caller, ref: SandboxRef, needs: 'running' | 'disk' = 'disk'): Promise<FilesInUse> {
    const row = await findSandbox(this.#lifecycle.deps.store, caller, ref)
    await this.#lifecycle.openFiles(row, caller, needs)
    return { row, files: this.#lifecycle.deps.runner.files, close: this.#lifecycle.activity.begin(row.id) }
  }
}

/** Yields the items, and releases when the reader has finished, stopped, or never begins. */
function releasing<Item>(
  items: AsyncIterable<Item>,
  release: readonly (() => void)[],
): AsyncGenerator<Item, void, undefined> {
  const iterator = items[Symbol.asyncIterator]()
  const releaseAll = () => {
    for (const each of release) each()
  }
  const end = async (): Promise<IteratorReturnResult<undefined>> => {
    releaseAll()
    await iterator.return?.()
    return { done: true, value: undefined }
  }
  return {
    async next() {
      try {
        const next = await iterator.next()
        if (!next.done) return next
      } catch (error) {
        releaseAll()
        throw error
      }
      releaseAll()
      return { done: true, value: undefined }
    },
    return: end,
    async throw(error: unknown) {
      await end()
      throw error
    },
    [Symbol.asyncIterator]() {
      return this
    },
    [Symbol.asyncDispose]: async () => void (await end()),
  }
}

/** @throws Refusal invalid_argument. */
function checkMode(mode: number | undefined): void {
  if (mode === undefined || (Number.isInteger(mode) && mode >= 0 && mode <= modeMax)) return
  throw new Refusal('invalid_argument', { field: 'mode', problem: 'must be permission bits such as 0644' })
}
