import { AsyncQueue } from '../../base/async-queue.ts'
import { Refusal } from '../../base/errors.ts'
import type { FileChange, SandboxFile } from '../../base/sandbox.ts'
import type { FromRunner } from '../protocol/messages.ts'
import type { ToSandboxFiles } from '../protocol/sandbox-messages.ts'
import type { SandboxFiles } from '../protocol/sandboxes.ts'
import { WireError } from '../protocol/wire.ts'
import type { FileClient } from './file-client.ts'
import type { SandboxLink } from './sandbox-client.ts'

/** Changes that wait for their reader; beyond it the watch ends with a refusal. */
const changesMax = 10_000

/** A request without its number, the sandbox and the path. */
type Rest<Message> = Message extends ToSandboxFiles ? Omit<Message, 'request' | 'sandboxId' | 'user'> : never

/** The client of `sandboxes.files` in the front. */
export class SandboxFileClient implements SandboxFiles {
  readonly #link: SandboxLink
  readonly #transfers: FileClient
  readonly #watches = new Map<number, AsyncQueue<FileChange>>()

  /** @param transfers of the same connection. */
  constructor(link: SandboxLink, transfers: FileClient) {
    this.#link = link
    this.#transfers = transfers
  }

  async stat(sandboxId: string, path: string, user?: string): Promise<SandboxFile> {
    const answer = await this.#ask(sandboxId, user, { type: 'sandbox_file_stat', path })
    return expect(answer, 'sandbox_file_status').status
  }

  async list(sandboxId: string, path: string, page: { cursor?: string; limit: number }, user?: string) {
    const answer = await this.#ask(sandboxId, user, { type: 'sandbox_file_list', path, ...page })
    const { entries, cursor } = expect(answer, 'sandbox_file_listing')
    return { entries, ...(cursor !== undefined && { cursor }) }
  }

  read(sandboxId: string, path: string, range?: { offset: number; lengthBytes: number }, user?: string) {
    const message = { type: 'sandbox_file_read', path, ...(range && { range }) } as const
    return this.#transfers.download(
      (request) => ({ ...message, ...numbered(request, sandboxId, user) }),
      (answer) => ({ status: expect(answer, 'sandbox_file_opened').status }),
    )
  }

  write(
    sandboxId: string,
    path: string,
    source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    how: { append?: boolean; mode?: number; makeParents?: boolean },
    user?: string,
  ): Promise<number> {
    const message = { type: 'sandbox_file_write', path, ...how } as const
    return this.#transfers.upload((request) => ({ ...message, ...numbered(request, sandboxId, user) }), source)
  }

  async makeDirectory(
    sandboxId: string,
    path: string,
    how: { parents?: boolean; mode?: number },
    user?: string,
  ): Promise<void> {
    await this.#ask(sandboxId, user, { type: 'sandbox_file_make_directory', path, ...how })
  }

  async move(sandboxId: string, from: string, to: string, mayReplace: boolean, user?: string): Promise<void> {
    await this.#ask(sandboxId, user, { type: 'sandbox_file_move', path: from, to, mayReplace })
  }

  async copy(sandboxId: string, from: string, to: string, mayReplace: boolean, user?: string): Promise<void> {
    await this.#ask(sandboxId, user, { type: 'sandbox_file_copy', path: from, to, mayReplace })
  }

  async remove(sandboxId: string, path: string, recursive: boolean, user?: string): Promise<void> {
    await this.#ask(sandboxId, user, { type: 'sandbox_file_remove', path, recursive })
  }

  watch(
    sandboxId: string,
    path: string,
    recursive: boolean,
    user?: string,
  ): Promise<AsyncIterableIterator<FileChange, void, undefined>> {
    let number = 0
    const queue = new AsyncQueue<FileChange>({
      capacity: changesMax,
      onAbandon: () => {
        if (this.#watches.delete(number)) this.#link.send({ type: 'files_stop', request: number })
      },
    })
    const asking = this.#link.ask(
      (request) => ({
        type: 'sandbox_file_watch',
        path,
        recursive,
        ...this.#register(request, sandboxId, user, queue),
      }),
      (request) => {
        number = request
        this.#watches.set(request, queue)
      },
    )
    return asking.then(
      () => queue,
      (error: unknown) => {
        this.#watches.delete(number)
        throw error
      },
    )
  }

  #register(request: number, sandboxId: string, user: string | undefined, queue: AsyncQueue<FileChange>) {
    this.#watches.set(request, queue)
    return numbered(request, sandboxId, user)
  }

  take({ request, change }: Extract<FromRunner, { type: 'sandbox_file_changed' }>): void {
    const queue = this.#watches.get(request)
    if (queue?.push(change) !== false) return
    this.#watches.delete(request)
    this.#link.send({ type: 'files_stop', request })
    queue.fail(new Refusal('unavailable', { reason: 'changes came faster than they were read' }))
  }

  /** Ends a watch that the runner ended. */
  end(request: number, error?: Error): void {
    const queue = this.#watches.get(request)
    this.#watches.delete(request)
    if (error) queue?.fail(error)
    else queue?.close()
  }

  lose(reason: string): void {
    for (const request of [...this.#watches.keys()]) this.end(request, new Refusal('unavailable', { reason }))
  }

  #ask(sandboxId: string, user: string | undefined, message: Rest<ToSandboxFiles>): Promise<FromRunner> {
    return this.#link.ask((request) => ({ ...message, ...numbered(request, sandboxId, user) }))
  }
}

const numbered = (request: number, sandboxId: string, user: string | undefined) => ({
  request,
  sandboxId,
  ...(user !== undefined && { user }),
})

function expect<Type extends FromRunner['type']>(answer: FromRunner, type: Type): Extract<FromRunner, { type: Type }> {
  if (answer.type !== type) throw new WireError(`the runner answered ${answer.type} instead of ${type}`)
  return answer as Extract<FromRunner, { type: Type }>
}
