import { type FileHandle, open } from 'node:fs/promises'
import { dirname } from 'node:path'

/**
 * The write-ahead log of an open database. Each commit is in it before the commit returns, so syncing it makes all
 * earlier commits durable; a checkpoint syncs it as well before it moves them. The file stays the same while the database
 * is open. Other than a durable transaction this does not hold the connection, and does not block the event loop.
 * https://www.sqlite.org/wal.html
 */
export class WriteAheadLog {
  readonly #path: string
  #file: Promise<FileHandle> | undefined

  /** @param databasePath of a database that is open and has been written to or read. */
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

  /** The first sync also makes the names of the database and its log durable. */
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
