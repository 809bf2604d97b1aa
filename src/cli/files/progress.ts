import { basename } from 'node:path'
import { Transform } from 'node:stream'
import { bytesInWords } from '../../tools/execute/ending-words.ts'
import { note } from '../api-client.ts'
import { ClientError } from '../client-error.ts'
import { printJson } from '../output.ts'
import { exitCodes, type ProcessIo } from '../process-io.ts'
import { printable } from '../terminal.ts'

/** Interval of the progress line on a terminal. */
const everyMs = 100

/** One file that was transferred. */
export interface Transferred {
  from: string
  to: string
  size: number
}

/** Reports transfers on standard error: a line for each file, and on a terminal how far the current one is. */
export class TransferProgress {
  readonly #io: ProcessIo
  readonly #total: number | undefined
  readonly #isQuiet: boolean
  readonly #done: Transferred[] = []
  readonly #command: string
  #exitCode: number = exitCodes.ok
  #shownMs = 0

  /** @param total number of files, if it is known. @param isQuiet whether only JSON is printed, at the end. */
  constructor(command: string, io: ProcessIo, total: number | undefined, isQuiet: boolean) {
    this.#command = command
    this.#io = io
    this.#total = total
    this.#isQuiet = isQuiet
  }

  /** That of the first file that failed. */
  get exitCode(): number {
    return this.#exitCode
  }

  /** A step for the bytes of a file, which shows the progress. @param size in bytes, if it is known. */
  step(name: string, size: number | undefined): Transform {
    let bytes = 0
    const isShown = this.#io.stderr.isTTY === true && !this.#isQuiet
    return new Transform({
      transform: (piece: Buffer, _, next) => {
        bytes += piece.length
        if (isShown && Date.now() - this.#shownMs >= everyMs) this.#show(name, bytes, size)
        next(null, piece)
      },
    })
  }

  /** A file is complete. */
  done(file: Transferred): void {
    this.#done.push(file)
    if (!this.#isQuiet) this.#print(`${file.from} → ${file.to}, ${file.size} bytes`)
  }

  /** A file of several failed. @throws the error, if the others would fail as well. */
  failed(error: unknown): void {
    const isOfOneFile =
      error instanceof ClientError &&
      [exitCodes.software, exitCodes.cannotCreate].some((code) => code === error.exitCode)
    if (!isOfOneFile) throw error
    if (this.#exitCode === exitCodes.ok) this.#exitCode = error.exitCode
    if (this.#io.stderr.isTTY === true) this.#io.stderr.write(eraseLine)
    note(this.#command, error.message, this.#io, 'red')
  }

  /** Prints what several files amount to, or all of them as JSON. */
  end(): void {
    if (this.#isQuiet) printJson(this.#done, this.#io)
    else if (this.#done.length !== 1) {
      const bytes = this.#done.reduce((sum, { size }) => sum + size, 0)
      this.#print(`${this.#done.length} files, ${bytes} bytes`)
    }
  }

  /** Prints a line in the place of the progress. */
  #print(line: string): void {
    const { stderr } = this.#io
    stderr.write(`${stderr.isTTY === true ? eraseLine : ''}${printable(line, stderr)}\n`)
  }

  #show(name: string, bytes: number, size = bytes): void {
    this.#shownMs = Date.now()
    const { stderr } = this.#io
    const number = `${this.#done.length + 1}${this.#total === undefined ? '' : `/${this.#total}`}`
    const percent = size === 0 ? 100 : Math.floor((bytes / size) * 100)
    const line = `${number}  ${`${percent}`.padStart(3)} % of ${bytesInWords(size)}  ${basename(name)}`
    stderr.write(`${eraseLine}${printable(line, stderr).slice(0, (stderr.columns ?? 80) - 1)}`)
  }
}

const eraseLine = '\r\x1b[K'
