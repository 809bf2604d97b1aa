import { type FileHandle, open } from 'node:fs/promises'
import { dirname } from 'node:path'

/**
 * Syncs the write-ahead log of an open database. A commit is written to the log before it returns, so syncing the log makes
 * all earlier commits durable. A checkpoint also syncs it before it moves them. The file stays the same while the database
 * is open. Unlike a durable transaction, a sync does not hold the connection and does not block the event loop.
 * https://www.sqlite.org/wal.html
 */
export class WriteAheadLog {
  readonly #path: string
  #file: Promise<FileHandle> | undefined

  /** @param databasePath path of an open database that has been read or written, so that its log exists. */
  constructor(databasePath: string) {
    this.#path = `${databasePath}-wal`
  }

  async sync(): Promise<void> {
    this.#file ??= this.#open()
    this.#file.catch(() => (this.#file = undefined))
    await (await this.#file).datasync()
  }

  async close(): Promise<void> {
    await (await this.#file)?.close()
  }

  /** Opens the log, and syncs the directory, so that the names of the database and its log are durable. */
  async #open(): Promise<FileHandle> {
    const directory = await open(dirname(this.#path), 'r')
    try {
      await directory.sync()
    } finally {
      await directory.close()
    }
    return open(this.#path, 'r')
  }
}
