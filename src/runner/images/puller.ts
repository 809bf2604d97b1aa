import { type ChildProcess, spawn } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import { encodeMessage, MessageReader, WireError } from '../protocol/wire.ts'
import type { PullerAnswer, PullerRequest } from './puller-messages.ts'

/** The registry, or the process that reads from it, failed. */
export class PullFailed extends Error {}

/** Starts the process that reads from registries as a user. */
export type PullerCommand = (uid: number) => readonly string[]

/** A process without privileges that reads from one repository. */
export class Puller {
  readonly #child: ChildProcess
  readonly #requests: Writable
  readonly #answers: AsyncGenerator<{ answer: PullerAnswer; payload: Buffer }, void, undefined>
  /** Resolves when the process has ended. */
  readonly exited: Promise<void>
  #said = ''

  /** @param command the program with its arguments. */
  constructor([program, ...args]: readonly string[], open: Omit<Extract<PullerRequest, { type: 'open' }>, 'type'>) {
    const child = spawn(program!, args, {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', LANG: 'C.UTF-8' },
    })
    this.#child = child
    this.#requests = child.stdin
    child.stdin.on('error', () => undefined) // Its end is noticed when the answers end.
    this.exited = new Promise((resolve) => {
      child.on('exit', () => resolve())
      child.on('error', (error) => {
        this.#said = error.message
        resolve()
      })
    })
    child.stderr.on('data', (text: Buffer) => {
      this.#said = (this.#said + text.toString('utf8')).slice(-500)
    })
    this.#answers = answersOf(child.stdout)
    this.#send({ type: 'open', ...open })
  }

  /** @param bytesMax limit on its size. @throws PullFailed. */
  async manifest(version: string, bytesMax: number): Promise<Buffer> {
    this.#send({ type: 'manifest', version })
    return this.#all(bytesMax)
  }

  /** @param bytesMax limit on its size. @throws PullFailed. */
  async document(digest: string, bytesMax: number): Promise<Buffer> {
    this.#send({ type: 'blob', digest, offset: 0 })
    return this.#all(bytesMax)
  }

  /** Reads a blob from an offset on. @throws PullFailed. */
  async *blob(digest: string, offset: number): AsyncGenerator<Buffer, void, undefined> {
    this.#send({ type: 'blob', digest, offset })
    yield* this.#pieces()
  }

  /** Kills it. */
  close(): void {
    this.#child.kill('SIGKILL')
  }

  async #all(bytesMax: number): Promise<Buffer> {
    const pieces: Buffer[] = []
    let bytes = 0
    for await (const piece of this.#pieces()) {
      bytes += piece.length
      if (bytes > bytesMax) throw new PullFailed(`the answer is larger than ${bytesMax} bytes`)
      pieces.push(piece)
    }
    return Buffer.concat(pieces)
  }

  async *#pieces(): AsyncGenerator<Buffer, void, undefined> {
    for (;;) {
      const { value } = await this.#answers.next()
      if (value === undefined) throw new PullFailed(`the download process ended. ${this.#said}`.trim())
      const { answer, payload } = value
      if (answer.type === 'end') return
      if (answer.type === 'failed') throw new PullFailed(String(answer.problem).slice(0, 500))
      yield payload
    }
  }

  #send(request: PullerRequest): void {
    this.#requests.write(encodeMessage(request))
  }
}

async function* answersOf(
  stdout: Readable,
): AsyncGenerator<{ answer: PullerAnswer; payload: Buffer }, void, undefined> {
  const reader = new MessageReader()
  try {
    for await (const chunk of stdout)
      for (const { header, payload } of reader.push(chunk as Buffer)) yield { answer: header as PullerAnswer, payload }
  } catch (error) {
    if (!(error instanceof WireError)) throw error
  }
}
