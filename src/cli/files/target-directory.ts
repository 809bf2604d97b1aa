import { randomBytes } from 'node:crypto'
import { lstat, mkdir, open, realpath, rename, rm } from 'node:fs/promises'
import { dirname, join, resolve, sep } from 'node:path'
import type { Readable } from 'node:stream'
import { reasonOf } from '../api-client.ts'
import { ClientError } from '../client-error.ts'
import { exitCodes } from '../process-io.ts'

/**
 * A local directory that files from a sandbox are written to. Whatever their names are, nothing outside of it changes:
 * below it, no symbolic link is followed.
 */
export class TargetDirectory {
  readonly #root: string
  /** Directories that were checked. */
  readonly #known = new Set<string>()

  private constructor(root: string) {
    this.#root = root
  }

  /** Creates the directory if it is missing. Links in its own path, which the user gave, are followed. */
  static async open(path: string): Promise<TargetDirectory> {
    try {
      await mkdir(path, { recursive: true })
      return new TargetDirectory(await realpath(path))
    } catch (error) {
      throw new ClientError(`cannot create ${path}: ${reasonOf(error)}`, exitCodes.cannotCreate)
    }
  }

  /**
   * Writes a file. An existing file or link with its name is replaced, when all bytes have arrived.
   * @param path relative to the directory. @param size in bytes, if it is known. @param mode permission bits, which the
   * umask restricts.
   * @returns the number of bytes written.
   * @throws ClientError when the path leaves the directory, passes a link, or cannot be written; errors of the bytes.
   */
  async write(path: string, bytes: Readable, size: number | undefined, mode = 0o644): Promise<number> {
    const target = this.#resolve(path)
    await this.#makeDirectory(dirname(target))
    const incoming = join(dirname(target), `.${randomBytes(8).toString('hex')}.incoming`)
    try {
      let written: number
      const file = await refusing(path, open(incoming, 'wx', mode))
      try {
        await file.writeFile(bytes)
        written = (await file.stat()).size
        if (size !== undefined && written !== size)
          throw new ClientError(`${path} ended after ${written} of ${size} bytes`)
        await file.sync()
      } finally {
        await file.close()
      }
      await refusing(path, rename(incoming, target))
      return written
    } catch (error) {
      await rm(incoming, { force: true })
      throw error
    }
  }

  /** Creates a directory, and those above it. */
  async makeDirectory(path: string): Promise<void> {
    await this.#makeDirectory(this.#resolve(path))
  }

  #resolve(path: string): string {
    const target = resolve(this.#root, path)
    const isInside = target === this.#root || target.startsWith(this.#root === sep ? sep : `${this.#root}${sep}`)
    if (!isInside || path.includes('\0')) throw new ClientError(`${path} is outside of the target directory`)
    return target
  }

  async #makeDirectory(directory: string): Promise<void> {
    if (directory === this.#root || this.#known.has(directory)) return
    await this.#makeDirectory(dirname(directory))
    await refusing(directory, mkdir(directory)).catch(async (error: unknown) => {
      const existing = await lstat(directory).catch(() => undefined)
      if (existing?.isDirectory() !== true) throw existing ? notADirectory(directory) : error
    })
    this.#known.add(directory)
  }
}

const notADirectory = (path: string): ClientError =>
  new ClientError(`${path} exists and is no directory; symbolic links are not followed`, exitCodes.cannotCreate)

async function refusing<Result>(path: string, work: Promise<Result>): Promise<Result> {
  try {
    return await work
  } catch (error) {
    throw new ClientError(`cannot write ${path}: ${reasonOf(error)}`, exitCodes.cannotCreate)
  }
}
