import { AsyncQueue } from '../../base/async-queue.ts'
import { Credit } from '../../base/credit.ts'
import { Refusal } from '../../base/errors.ts'
import {
  type FileStream,
  type FromRunner,
  filePieceBytes,
  fileWindowBytes,
  type RunnerFiles,
  type StorageRef,
  type ToRunner,
} from '../protocol/messages.ts'
import { kept } from '../protocol/wire.ts'

/** The functions of the connection that file transfers use. */
export interface FileLink {
  /** Sends a request and waits for the response. @param numbered called with the number before a response can arrive. */
  ask(message: (request: number) => ToRunner, numbered?: (request: number) => void): Promise<FromRunner>
  send(message: ToRunner, payload?: Uint8Array): void
}

type Flowing = Extract<FromRunner, { type: 'files_bytes' | 'files_end' | 'files_room' }>

interface Flow {
  take(message: Flowing, payload: Buffer): void
  fail(error: Error): void
}

/** The client of `files.*` in the front. A lost connection ends active transfers with a refusal. */
export class FileClient implements RunnerFiles {
  readonly #link: FileLink
  readonly #flows = new Map<number, Flow>()

  constructor(link: FileLink) {
    this.#link = link
  }

  async list(where: StorageRef, path: string, page: { cursor?: string; limit: number }) {
    const answer = await this.#link.ask((request) => ({ type: 'files_list', request, where, path, ...page }))
    const { cursor, ...listing } = expect(answer, 'files_listing').listing
    return { ...listing, cursor }
  }

  async stat(where: StorageRef, path: string) {
    return expect(await this.#link.ask((request) => ({ type: 'files_stat', request, where, path })), 'files_status')
      .status
  }

  async makeDirectory(where: StorageRef, path: string): Promise<void> {
    await this.#link.ask((request) => ({ type: 'files_make_directory', request, where, path }))
  }

  async move(where: StorageRef, from: string, to: string, mayReplace: boolean): Promise<void> {
    await this.#link.ask((request) => ({ type: 'files_move', request, where, from, to, mayReplace }))
  }

  async delete(where: StorageRef, path: string, recursive: boolean) {
    const answer = await this.#link.ask((request) => ({ type: 'files_delete', request, where, path, recursive }))
    return expect(answer, 'files_deleted').deleted
  }

  read(where: StorageRef, path: string, range?: { offset: number; lengthBytes: number }): Promise<FileStream> {
    return this.download(
      (request) => ({ type: 'files_read', request, where, path, ...(range && { range }) }),
      (answer) => expect(answer, 'files_opened'),
    )
  }

  write(where: StorageRef, path: string, source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<number> {
    return this.upload((request) => ({ type: 'files_write', request, where, path }), source)
  }

  /** @param opened what the first answer says; the bytes follow it. */
  async download<Opened>(
    message: (request: number) => ToRunner,
    opened: (answer: FromRunner) => Opened,
  ): Promise<Opened & Pick<FileStream, 'bytes' | 'stop'>> {
    const incoming = new Incoming()
    let number = 0
    const asking = this.#link.ask(message, (request) => {
      number = request
      this.#flows.set(request, incoming)
    })
    const stop = () => {
      if (this.#flows.delete(number)) this.#link.send({ type: 'files_stop', request: number })
      incoming.fail(new Refusal('unavailable', { reason: 'the file was closed' }))
    }
    try {
      const first = opened(await asking)
      const more = (bytes: number) => this.#link.send({ type: 'files_more', request: number, bytes })
      return { ...first, bytes: until(incoming.bytes(more), stop), stop }
    } catch (error) {
      this.#flows.delete(number)
      throw error
    }
  }

  /** @returns the number of bytes that were written. */
  async upload(
    message: (request: number) => ToRunner,
    source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<number> {
    const outgoing = new Outgoing()
    let number = 0
    const asking = this.#link.ask(message, (request) => {
      number = request
      this.#flows.set(request, outgoing)
    })
    // A refusal of the transfer also wakes a writer that waits for credit.
    asking.catch((error: Error) => outgoing.fail(error))
    try {
      for await (const chunk of source) {
        for (let at = 0; at < chunk.length; at += filePieceBytes) {
          const piece = chunk.subarray(at, at + filePieceBytes)
          await outgoing.spend(piece.length)
          this.#link.send({ type: 'files_bytes', request: number }, piece)
        }
      }
      this.#link.send({ type: 'files_finish', request: number })
      return expect(await asking, 'files_written').bytes
    } catch (error) {
      this.#link.send({ type: 'files_stop', request: number })
      throw error
    } finally {
      this.#flows.delete(number)
    }
  }

  /** Handles a message about an active transfer. Messages about an abandoned one are ignored. */
  take(message: Flowing, payload: Buffer): void {
    this.#flows.get(message.request)?.take(message, payload)
    if (message.type === 'files_end') this.#flows.delete(message.request)
  }

  /** Ends a transfer that the runner refused. */
  refuse(request: number, error: Error): void {
    this.#flows.get(request)?.fail(error)
    this.#flows.delete(request)
  }

  /** Ends all transfers after the connection was lost. */
  lose(reason: string): void {
    for (const request of [...this.#flows.keys()]) this.refuse(request, new Refusal('unavailable', { reason }))
  }
}

function expect<Type extends FromRunner['type']>(answer: FromRunner, type: Type): Extract<FromRunner, { type: Type }> {
  if (answer.type !== type) throw new Error(`the runner answered ${answer.type} instead of ${type}`)
  return answer as Extract<FromRunner, { type: Type }>
}

/** Runs `then` when the iteration ends for any reason. */
async function* until<T>(values: AsyncGenerator<T, void, undefined>, then: () => void) {
  try {
    yield* values
  } finally {
    then()
  }
}

/** An active download. */
class Incoming implements Flow {
  readonly #arrived = new AsyncQueue<Buffer>({ capacity: fileWindowBytes, sizeOf: (piece) => piece.length })

  take(message: Flowing, payload: Buffer): void {
    if (message.type !== 'files_bytes') this.#arrived.close()
    else if (!this.#arrived.push(kept(payload))) this.fail(new Error('the runner sent more of a file than was granted'))
  }

  fail(error: Error): void {
    this.#arrived.fail(error)
  }

  /** @param more grants the runner further bytes, those that the reader has used. */
  async *bytes(more: (bytes: number) => void): AsyncGenerator<Uint8Array, void, undefined> {
    let owedBytes = 0
    for await (const piece of this.#arrived) {
      yield piece
      owedBytes += piece.length
      if (owedBytes < fileWindowBytes / 4) continue
      more(owedBytes)
      owedBytes = 0
    }
  }
}

/** An active upload with the credit that the runner granted. */
class Outgoing implements Flow {
  readonly #credit = new Credit(0)
  #failure: Error | undefined

  take(message: Flowing): void {
    if (message.type === 'files_room') this.#credit.add(message.bytes)
  }

  fail(error: Error): void {
    this.#failure ??= error
    this.#credit.close()
  }

  /** Waits until so many bytes may be sent. Rejects with the error of `fail`. */
  async spend(bytes: number): Promise<void> {
    if (!(await this.#credit.spend(bytes))) throw this.#failure
  }
}
