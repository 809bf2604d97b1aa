import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { makeDirectoryDurably, syncDirectory } from '../../base/durable-directory.ts'
import { StartRefused } from '../../base/errors.ts'
import type { StoredImage } from '../../base/image.ts'
import type { LanguageFound } from '../../engine/jails/languages.ts'

/** An image with what only the runner needs of it. */
export interface ImageRecord extends StoredImage {
  /** With the paths of the interpreters. */
  languages: readonly LanguageFound[]
  /** Whether it is given the Node.js of the product. */
  hasNode: boolean
}

/** The images of a runner: one file, replaced atomically, so that after a crash it is as before or after a change. */
export class ImageIndex {
  readonly #path: string
  #records: readonly ImageRecord[]

  /** @throws StartRefused if the file is damaged. */
  constructor(home: string) {
    makeDirectoryDurably(home, 0o700)
    this.#path = join(home, 'index.json')
    this.#records = read(this.#path)
  }

  get records(): readonly ImageRecord[] {
    return this.#records
  }

  named(name: string): ImageRecord | undefined {
    return this.#records.find(({ names }) => names.includes(name))
  }

  withId(id: string): ImageRecord | undefined {
    return this.#records.find((record) => record.id === id)
  }

  /** Adds an image, or gives it another name. Names refer to one image each. */
  put(record: ImageRecord): void {
    const others = this.#records
      .filter(({ id }) => id !== record.id)
      .map((other) => ({ ...other, names: other.names.filter((name) => !record.names.includes(name)) }))
    this.#write([...others, record])
  }

  /** Removes names; images without a name stay until they are removed. */
  removeName(name: string): void {
    this.#write(this.#records.map((record) => ({ ...record, names: record.names.filter((one) => one !== name) })))
  }

  remove(id: string): void {
    this.#write(this.#records.filter((record) => record.id !== id))
  }

  #write(records: readonly ImageRecord[]): void {
    const unfinished = `${this.#path}.new`
    const file = openSync(unfinished, 'w', 0o600)
    try {
      writeSync(file, JSON.stringify({ version: 1, images: records }))
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
    renameSync(unfinished, this.#path)
    syncDirectory(join(this.#path, '..'))
    this.#records = records
  }
}

function read(path: string): ImageRecord[] {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
  try {
    const { version, images } = JSON.parse(text) as { version: number; images: ImageRecord[] }
    if (version === 1 && Array.isArray(images)) return images
  } catch {
    // Reported below.
  }
  throw new StartRefused(`${path} is not a list of images.`, 'Restore it from a backup, or remove its directory.')
}
