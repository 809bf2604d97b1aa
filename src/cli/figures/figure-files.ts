import { randomBytes } from 'node:crypto'
import { mkdir, open, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { note, reasonOf } from '../api-client.ts'
import type { ProcessIo } from '../process-io.ts'
import { type ImageLine, writeTo } from '../run-lines.ts'
import { inlineImage, protocolOf } from './inline-image.ts'

/** Where the figures of a run are saved: `<directory>/<stem>-1.png` and so on. */
export interface FigurePlace {
  directory: string
  stem: string
}

const extensions: Readonly<Record<string, string>> = { 'image/png': 'png', 'image/jpeg': 'jpg' }

/** Saves the figures of one run in the order in which it shows them, and shows them on terminals that can. */
export class FigureFiles {
  readonly #place: FigurePlace | undefined
  readonly #io: ProcessIo
  readonly #isQuiet: boolean
  readonly #saved: string[] = []
  #number = 0
  #failed = false

  /** @param place `undefined`: figures are not saved. @param isQuiet whether nothing is shown or printed. */
  constructor(place: FigurePlace | undefined, io: ProcessIo, isQuiet: boolean) {
    this.#place = place
    this.#io = io
    this.#isQuiet = isQuiet
  }

  /** The paths of the files. */
  get saved(): readonly string[] {
    return this.#saved
  }

  /** Whether a figure could not be saved. */
  get failed(): boolean {
    return this.#failed
  }

  async add({ mime_type: mediaType, data_base64: data }: ImageLine): Promise<void> {
    const bytes = Buffer.from(data, 'base64')
    const { stdout, env } = this.#io
    const protocol = stdout.isTTY === true && !this.#isQuiet ? protocolOf(env) : undefined
    const shown = protocol && inlineImage(bytes, mediaType, protocol)
    if (shown !== undefined) await writeTo(stdout, `${shown}\n`)
    if (this.#place !== undefined) await this.#save(this.#place, bytes, extensions[mediaType] ?? 'bin')
  }

  /** Replaces the figure of an earlier run. */
  async #save({ directory, stem }: FigurePlace, bytes: Buffer, extension: string): Promise<void> {
    const path = join(directory, `${stem}-${++this.#number}.${extension}`)
    const incoming = join(directory, `.${randomBytes(8).toString('hex')}.incoming`)
    try {
      await mkdir(directory, { recursive: true })
      // Renamed into place, so that a link with this name is replaced, not followed.
      const file = await open(incoming, 'wx', 0o644)
      await file.writeFile(bytes).finally(() => file.close())
      await rename(incoming, path)
      this.#saved.push(path)
      if (!this.#isQuiet) note('run', `figure saved: ${path}`, this.#io)
    } catch (error) {
      await rm(incoming, { force: true }).catch(() => undefined) // Reported below.
      this.#failed = true
      note('run', `cannot save the figure ${path}: ${reasonOf(error)}`, this.#io, 'red')
    }
  }
}
