import { closeSync, cpSync, existsSync, mkdirSync, mkdtempSync, openSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type {
  FileStream,
  RunnerFiles,
  RunnerStorage,
  StorageRef,
  StorageStatus,
} from '../../src/runner/protocol/messages.ts'
import { deletePath } from '../../src/storage/deletion.ts'
import { makeDirectory, movePath, readFile, statPath, writeFile } from '../../src/storage/files.ts'
import { busy, unknown } from '../../src/storage/filesystem-id.ts'
import { listDirectory } from '../../src/storage/listing.ts'
import { parsePath } from '../../src/storage/paths.ts'

export interface Home {
  path: string
  release(): void
}

/** Threads and volumes as plain directories without limits, for the suites of the front alone. How files are opened is the real thing. */
export class PlainThreads implements RunnerFiles, RunnerStorage {
  readonly #dir = mkdtempSync(join(tmpdir(), 'glovebox-threads-'))
  readonly #busy = new Set<string>()

  /** Gives a thread to a run, and creates it if necessary. @throws Refusal thread_busy. */
  take(where: StorageRef): Home {
    const path = this.#path(where)
    if (this.#busy.has(path)) throw busy(where)
    mkdirSync(path, { recursive: true })
    this.#busy.add(path)
    return { path, release: () => this.#busy.delete(path) }
  }

  list: RunnerFiles['list'] = (where, path, { cursor, limit }) =>
    this.#in(where, (root) => listDirectory(root, path, cursor, limit))
  stat: RunnerFiles['stat'] = async (where, path) => {
    parsePath(path)
    return this.#in(where, (root) => statPath(root, path))
  }
  write: RunnerFiles['write'] = (where, path, source) => this.#changing(where, (root) => writeFile(root, path, source))
  makeDirectory: RunnerFiles['makeDirectory'] = (where, path) =>
    this.#changing(where, (root) => makeDirectory(root, path))
  move: RunnerFiles['move'] = (where, ...words) => this.#changing(where, (root) => movePath(root, ...words))
  delete: RunnerFiles['delete'] = (where, ...words) => this.#changing(where, (root) => deletePath(root, ...words))

  async read(...[where, path, range]: Parameters<RunnerFiles['read']>): Promise<FileStream> {
    const file = await this.#in(where, (root) => readFile(root, path, range))
    return { ...file, stop: () => void file.close() }
  }

  async create(where: StorageRef): Promise<boolean> {
    return mkdirSync(this.#path(where), { recursive: true }) !== undefined
  }

  async remove(where: StorageRef): Promise<boolean> {
    this.#requireFree(where)
    const existed = existsSync(this.#path(where))
    rmSync(this.#path(where), { recursive: true, force: true })
    return existed
  }

  async fork(from: StorageRef, to: StorageRef): Promise<boolean> {
    if (!existsSync(this.#path(from))) throw unknown(from)
    for (const each of [from, to]) this.#requireFree(each)
    if (existsSync(this.#path(to))) return false
    cpSync(this.#path(from), this.#path(to), { recursive: true })
    return true
  }

  async inspect(where: StorageRef): Promise<StorageStatus> {
    if (!existsSync(this.#path(where))) throw unknown(where)
    const inodes = readdirSync(this.#path(where), { recursive: true }).length
    const mounted = this.#busy.has(this.#path(where))
    return {
      sizeBytes: 4096 * (1 + inodes),
      usedBytes: 4096 * inodes,
      quotaBytes: 2 ** 30,
      inodes,
      inodesMax: 1_000,
      mounted,
    }
  }

  async sizes(area: StorageRef['area'], org: string, names: readonly string[]): Promise<(number | null)[]> {
    return names.map((name) => (existsSync(this.#path({ area, org, name })) ? 4096 : null))
  }

  async names(area: StorageRef['area'], org: string, after: string, limit: number): Promise<string[]> {
    const dir = join(this.#dir, area, org)
    const names = existsSync(dir) ? readdirSync(dir).sort() : []
    return names.filter((name) => name > after).slice(0, limit)
  }

  close(): void {
    rmSync(this.#dir, { recursive: true, force: true })
  }

  #requireFree(where: StorageRef): void {
    if (this.#busy.has(this.#path(where))) throw busy(where)
  }

  #path = ({ area, org, name }: StorageRef): string => join(this.#dir, area, org, name)

  /** Changes to the files of a thread are rejected while a run uses it. */
  #changing<T>(where: StorageRef, work: (root: number) => Promise<T>): Promise<T> {
    if (where.area === 'threads' && this.#busy.has(this.#path(where))) return Promise.reject(busy(where))
    return this.#in(where, work)
  }

  async #in<T>(where: StorageRef, work: (root: number) => Promise<T>): Promise<T> {
    const path = this.#path(where)
    if (!existsSync(path)) throw unknown(where)
    const root = openSync(path, 'r')
    try {
      return await work(root)
    } finally {
      closeSync(root)
    }
  }
}
