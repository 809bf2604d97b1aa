import { closeSync, constants, fstatSync, openSync, writeSync } from 'node:fs'
import { StartRefused } from '../../../base/errors.ts'
import type { CreatedKey } from '../../../core/admin/declared/declaration.ts'

const { O_APPEND, O_CREAT, O_NOFOLLOW, O_WRONLY } = constants

/** A file to which the secrets of new keys are appended, as lines of YAML that only its owner can read. */
export class SecretsFile {
  readonly #descriptor: number

  /**
   * Opens or creates it: before the command becomes the user of the API server, and before a key exists whose secret
   * could not be stored. @throws StartRefused if it cannot be written, or others can read it.
   */
  constructor(path: string) {
    try {
      this.#descriptor = openSync(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0o600)
    } catch (error) {
      throw new StartRefused(`Cannot write ${path}: ${(error as Error).message}.`, 'Name a file that you may write to.')
    }
    const stat = fstatSync(this.#descriptor)
    if (stat.isFile() && (stat.mode & 0o077) === 0) return
    closeSync(this.#descriptor)
    throw new StartRefused(
      `Others can read ${path}, or it is not a file.`,
      `Run chmod 600 ${path}, or name another file.`,
    )
  }

  append(keys: readonly CreatedKey[]): void {
    for (const { org, name, secret } of keys)
      writeSync(this.#descriptor, `${JSON.stringify(`${org}/${name}`)}: ${JSON.stringify(secret)}\n`)
  }

  close(): void {
    closeSync(this.#descriptor)
  }
}
