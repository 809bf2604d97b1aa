import { AsyncQueue } from '../../base/async-queue.ts'
import { Refusal } from '../../base/errors.ts'
import type { Review } from '../../base/host-workspace.ts'
import type { JailNetwork } from '../../base/network.ts'
import type {
  ProcessEvent,
  ProcessSpec,
  ProcessStatus,
  SandboxFigures,
  SandboxSpec,
  SandboxStatus,
  TerminalSize,
} from '../../base/sandbox.ts'
import type { FromRunner, ToRunner } from '../protocol/messages.ts'
import { inputPieceBytes } from '../protocol/sandbox-messages.ts'
import type { ReviewRequest, RunnerSandboxes, SandboxProcesses, SandboxStates } from '../protocol/sandboxes.ts'
import { WireError } from '../protocol/wire.ts'
import type { FileClient, FileLink } from './file-client.ts'
import { SandboxFileClient } from './sandbox-file-client.ts'
import { TunnelClient } from './tunnel-client.ts'

/** Output that may be in flight to a reader or wait for it, in bytes; a slow reader holds no more than this. */
const windowBytes = 256 * 1024
/** Credit is returned in this unit, so that the runner never waits while the reader does not. */
const creditUnitBytes = windowBytes / 4
/** The runner sends while any credit is left, so that one event may exceed the window. */
const queueBytes = windowBytes + 64 * 1024
/** Changes of state that wait for their reader; beyond it the stream ends, and the reader lists again. */
const changesMax = 10_000

/** The functions of the connection that sandboxes use. */
export interface SandboxLink extends FileLink {
  ask(
    message: (request: number) => ToRunner,
    numbered?: (request: number) => void,
    payload?: Uint8Array,
  ): Promise<FromRunner>
}

type Followed = Extract<
  FromRunner,
  { type: 'process_output' | 'process_gap' | 'process_ended' | 'sandbox_changed' | 'sandbox_file_changed' }
>

/** The client of `sandboxes` in the front. A lost connection ends what is followed with a refusal. */
export class SandboxClient implements RunnerSandboxes {
  readonly files: SandboxFileClient
  readonly processes: ProcessClient
  readonly tunnels: TunnelClient
  readonly states: SandboxStates
  readonly #link: SandboxLink
  readonly #changes = new Map<number, AsyncQueue<SandboxStatus>>()

  /** @param transfers of files, of the same connection. */
  constructor(link: SandboxLink, transfers: FileClient) {
    this.#link = link
    this.files = new SandboxFileClient(link, transfers)
    this.processes = new ProcessClient(link)
    this.tunnels = new TunnelClient(link)
    this.states = statesOver(link)
  }

  async start(spec: SandboxSpec): Promise<void> {
    await this.#link.ask((request) => ({ type: 'sandbox_start', request, spec }))
  }

  async stop(sandboxId: string, graceMs: number): Promise<void> {
    await this.#link.ask((request) => ({ type: 'sandbox_stop', request, sandboxId, graceMs }))
  }

  async openFiles(spec: SandboxSpec): Promise<void> {
    await this.#link.ask((request) => ({ type: 'sandbox_open_files', request, spec }))
  }

  async pause(sandboxId: string): Promise<void> {
    await this.#link.ask((request) => ({ type: 'sandbox_pause', request, sandboxId }))
  }

  async changeNetwork(sandboxId: string, network: JailNetwork): Promise<void> {
    await this.#link.ask((request) => ({ type: 'sandbox_network', request, sandboxId, network }))
  }

  async resume(sandboxId: string): Promise<void> {
    await this.#link.ask((request) => ({ type: 'sandbox_resume', request, sandboxId }))
  }

  async remove(orgId: string, sandboxId: string): Promise<boolean> {
    const answer = await this.#link.ask((request) => ({ type: 'sandbox_remove', request, orgId, sandboxId }))
    return expect(answer, 'sandbox_removed').did
  }

  async list(): Promise<SandboxStatus[]> {
    return expect(await this.#link.ask((request) => ({ type: 'sandbox_list', request })), 'sandboxes').sandboxes
  }

  changes(): AsyncIterableIterator<SandboxStatus, void, undefined> {
    let number = 0
    const queue = new AsyncQueue<SandboxStatus>({ capacity: changesMax, onAbandon: () => this.#changes.delete(number) })
    const asking = this.#link.ask(
      (request) => ({ type: 'sandbox_changes', request }),
      (request) => {
        number = request
        this.#changes.set(request, queue)
      },
    )
    asking.catch((error: Error) => {
      this.#changes.delete(number)
      queue.fail(error)
    })
    return queue
  }

  async figures(sandboxIds: readonly string[]): Promise<(SandboxFigures | null)[]> {
    const answer = await this.#link.ask((request) => ({ type: 'sandbox_figures', request, sandboxIds }))
    return expect(answer, 'sandbox_figures').figures
  }

  async review(asked: ReviewRequest, paths?: readonly string[]): Promise<Review> {
    const answer = await this.#link.ask((request) => ({
      ...{ type: 'sandbox_review', request, ...asked },
      ...(paths && { paths }),
    }))
    return expect(answer, 'sandbox_reviewed').review
  }

  /** Handles a message about something that is followed. Messages about what is not any more are ignored. */
  take(message: Followed, payload: Buffer): void {
    if (message.type === 'sandbox_file_changed') {
      this.files.take(message)
      return
    }
    if (message.type !== 'sandbox_changed') {
      this.processes.take(message, payload)
      return
    }
    const queue = this.#changes.get(message.request)
    if (queue?.push(message.status) !== false) return
    this.#changes.delete(message.request)
    queue.close()
  }

  /** Ends everything that is followed after the connection was lost. */
  lose(reason: string): void {
    for (const queue of this.#changes.values()) queue.close()
    this.#changes.clear()
    this.processes.lose(reason)
    this.files.lose(reason)
    this.tunnels.lose()
  }
}

function statesOver(link: SandboxLink): SandboxStates {
  return {
    keep: async (sandboxId, context, most, undone) => {
      await link.ask((request) => ({ type: 'sandbox_state_keep', request, sandboxId, context, most, undone }))
    },
    check: async (sandboxId, context, calls) => {
      await link.ask((request) => ({ type: 'sandbox_state_check', request, sandboxId, context, calls }))
    },
    rewind: async (sandboxId, context, calls) => {
      const answer = await link.ask((request) => ({
        ...{ type: 'sandbox_state_rewind', request, sandboxId, context, calls },
      }))
      return expect(answer, 'sandbox_rewound').files
    },
    forget: async (sandboxId, context) => {
      await link.ask((request) => ({ type: 'sandbox_state_forget', request, sandboxId, context }))
    },
  }
}

/** Follows one process for one reader, with a bounded window between the socket and the reader. */
class ProcessReader {
  readonly events: AsyncQueue<ProcessEvent>
  number = 0
  #owedBytes = 0

  constructor(link: { more(bytes: number): void; abandoned(): void }) {
    this.events = new AsyncQueue<ProcessEvent>({
      capacity: queueBytes,
      sizeOf: bytesOf,
      onTake: (event) => {
        this.#owedBytes += bytesOf(event)
        if (this.#owedBytes < creditUnitBytes) return
        link.more(this.#owedBytes)
        this.#owedBytes = 0
      },
      onAbandon: () => link.abandoned(),
    })
  }
}

const bytesOf = (event: ProcessEvent): number => (event.kind === 'output' ? event.bytes.length : 0)

export class ProcessClient implements SandboxProcesses {
  readonly #link: SandboxLink
  readonly #readers = new Map<number, ProcessReader>()

  constructor(link: SandboxLink) {
    this.#link = link
  }

  async start(sandboxId: string, spec: ProcessSpec): Promise<ProcessStatus> {
    const answer = await this.#link.ask((request) => ({ type: 'process_start', request, sandboxId, spec }))
    return expect(answer, 'process_status').status
  }

  async startFollowed(
    sandboxId: string,
    spec: ProcessSpec,
  ): Promise<{ status: ProcessStatus; events: AsyncIterableIterator<ProcessEvent, void, undefined> }> {
    const reader = this.#newReader()
    const message = { type: 'process_start', sandboxId, spec, windowBytes } as const
    const answer = await this.#follow(reader, (request) => ({ ...message, request }))
    return { status: expect(answer, 'process_status').status, events: reader.events }
  }

  attach(sandboxId: string, processId: number, afterSeq: number): AsyncIterableIterator<ProcessEvent, void, undefined> {
    const reader = this.#newReader()
    const message = { type: 'process_attach', sandboxId, processId, afterSeq, windowBytes } as const
    this.#follow(reader, (request) => ({ ...message, request })).catch(() => undefined)
    return reader.events
  }

  #newReader(): ProcessReader {
    const reader: ProcessReader = new ProcessReader({
      more: (bytes) => this.#link.send({ type: 'process_more', attachment: reader.number, bytes }),
      abandoned: () => {
        const attachment = reader.number
        if (this.#readers.delete(attachment)) this.#link.send({ type: 'process_detach', attachment })
      },
    })
    return reader
  }

  /** Sends a request whose events a reader receives. A refusal is also its end. */
  async #follow(reader: ProcessReader, message: (request: number) => ToRunner): Promise<FromRunner> {
    try {
      return await this.#link.ask(message, (request) => {
        reader.number = request
        this.#readers.set(request, reader)
      })
    } catch (error) {
      this.#readers.delete(reader.number)
      reader.events.fail(error as Error)
      throw error
    }
  }

  async write(
    sandboxId: string,
    processId: number,
    to: 'stdin' | 'channel',
    bytes: Uint8Array,
    signal?: AbortSignal,
  ): Promise<void> {
    const left = Promise.withResolvers<void>()
    signal?.addEventListener('abort', () => left.resolve(), { once: true })
    for (let at = 0; at < bytes.length && !signal?.aborted; at += inputPieceBytes) {
      const piece = bytes.subarray(at, at + inputPieceBytes)
      const taken = this.#link.ask(
        (request) => ({ type: 'process_write', request, sandboxId, processId, to }),
        undefined,
        piece,
      )
      // What waits for a program that never reads must not hold `bytes` after the caller has left.
      await Promise.race([taken, left.promise])
    }
  }

  async close(sandboxId: string, processId: number, what: 'stdin' | 'channel'): Promise<void> {
    await this.#link.ask((request) => ({ type: 'process_close', request, sandboxId, processId, what }))
  }

  async signal(sandboxId: string, processId: number, signal: number, target: 'group' | 'one'): Promise<void> {
    await this.#link.ask((request) => ({ type: 'process_signal', request, sandboxId, processId, signal, target }))
  }

  async resize(sandboxId: string, processId: number, size: TerminalSize): Promise<void> {
    await this.#link.ask((request) => ({ type: 'process_resize', request, sandboxId, processId, size }))
  }

  async list(sandboxId: string): Promise<ProcessStatus[]> {
    const answer = await this.#link.ask((request) => ({ type: 'process_list', request, sandboxId }))
    return expect(answer, 'processes').processes
  }

  async forget(sandboxId: string, processId: number): Promise<void> {
    await this.#link.ask((request) => ({ type: 'process_forget', request, sandboxId, processId }))
  }

  /** BOUNDARY. @throws WireError when the runner sends more than it has credit for. */
  take(
    { request, type, ...rest }: Exclude<Followed, { type: 'sandbox_changed' | 'sandbox_file_changed' }>,
    payload: Buffer,
  ): void {
    const reader = this.#readers.get(request)
    if (!reader) return
    const kind = kinds[type]
    // The payload is a view of the read buffer; it is copied so that a small one does not retain a large buffer.
    const bytes = kind === 'output' ? { bytes: Buffer.from(payload) } : {}
    const isAccepted = reader.events.push({ kind, ...rest, ...bytes } as ProcessEvent)
    if (!isAccepted) throw new WireError('the runner sent more output than it has credit for')
    if (kind !== 'ended') return
    this.#readers.delete(request)
    reader.events.close()
  }

  lose(reason: string): void {
    for (const reader of this.#readers.values()) reader.events.fail(new Refusal('unavailable', { reason }))
    this.#readers.clear()
  }
}

const kinds = { process_output: 'output', process_gap: 'gap', process_ended: 'ended' } as const

function expect<Type extends FromRunner['type']>(answer: FromRunner, type: Type): Extract<FromRunner, { type: Type }> {
  if (answer.type !== type) throw new WireError(`the runner answered ${answer.type} instead of ${type}`)
  return answer as Extract<FromRunner, { type: Type }>
}
