import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Refusal } from '../../src/base/errors.ts'
import type { FileStream, RunnerFiles, StorageRef } from '../../src/runner/messages.ts'
import { deletePath } from '../../src/storage/deletion.ts'
import { makeDirectory, movePath, readFile, statPath, writeFile } from '../../src/storage/files.ts'
import { listDirectory } from '../../src/storage/listing.ts'

export interface Home {
  path: string
  release(): void
}

/** Threads as plain directories, for the suites of the front alone. How files are opened is the real thing. */
export class PlainThreads implements RunnerFiles {
  readonly #dir = mkdtempSync(join(tmpdir(), 'glovebox-threads-'))
  readonly #busy = new Set<string>()

  /** Gives a thread to a run; makes it. @throws Refusal thread_busy. */
  take(where: StorageRef): Home {
    const path = this.#path(where)
    if (this.#busy.has(path)) throw new Refusal('thread_busy', { thread: where.name })
    mkdirSync(path, { recursive: true })
    this.#busy.add(path)
    return { path, release: () => this.#busy.delete(path) }
  }

  list: RunnerFiles['list'] = (where, path, { cursor, limit }) =>
    this.#in(where, (root) => listDirectory(root, path, cursor, limit))
  stat: RunnerFiles['stat'] = (where, path) => this.#in(where, (root) => statPath(root, path))
  write: RunnerFiles['write'] = (where, path, source) => this.#in(where, (root) => writeFile(root, path, source))
  makeDirectory: RunnerFiles['makeDirectory'] = (where, path) => this.#in(where, (root) => makeDirectory(root, path))
  move: RunnerFiles['move'] = (where, ...words) => this.#in(where, (root) => movePath(root, ...words))
  delete: RunnerFiles['delete'] = (where, ...words) => this.#in(where, (root) => deletePath(root, ...words))

  async read(...[where, path, range]: Parameters<RunnerFiles['read']>): Promise<FileStream> {
    const file = await this.#in(where, (root) => readFile(root, path, range))
    return { ...file, stop: () => void file.close() }
  }

  remove(): void {
    rmSync(this.#dir, { recursive: true, force: true })
  }

  #path = ({ area, org, name }: StorageRef): string => join(this.#dir, area, org, name)

  async #in<T>(where: StorageRef, work: (root: number) => Promise<T>): Promise<T> {
    const path = this.#path(where)
    if (!existsSync(path)) throw new Refusal('thread_unknown', { thread: where.name })
    const root = openSync(path, 'r')
    try {
      return await work(root)
    } finally {
      closeSync(root)
    }
  }
}
