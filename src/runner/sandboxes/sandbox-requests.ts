import { Refusal } from '../../base/errors.ts'
import { inputCost } from '../../engine/sandboxes/agent-process.ts'
import type { FrontLink } from '../front-link.ts'
import type { FromRunner, ToRunner } from '../protocol/messages.ts'
import { inputPieceBytes, type ToSandboxes, type ToSandboxFiles } from '../protocol/sandbox-messages.ts'
import { WireError } from '../protocol/wire.ts'
import type { FileFlows } from '../storage/file-flows.ts'
import { SandboxFileRequests } from './sandbox-file-requests.ts'
import type { SandboxProcess } from './sandbox-process.ts'
import type { Sandboxes } from './sandboxes.ts'

/** Attachments and unanswered requests of one front; more of them are a protocol violation. */
const maxPending = 16_384
/** Input for processes that do not read it, by its cost; beyond it further input is refused. At most 8,192 pieces. */
const maxWritingBytes = { total: 256 * 1024 * 1024, perOrg: 64 * 1024 * 1024 }

export const isOfSandboxes = (message: ToRunner): message is ToSandboxes =>
  message.type.startsWith('sandbox_') || message.type.startsWith('process_')

interface Reader {
  process: SandboxProcess
  seq: number
  /** Output bytes that may still be sent. */
  windowBytes: number
  stop: (() => void)[]
}

/** What a front asks of sandboxes. */
export class SandboxRequests {
  readonly #sandboxes: Sandboxes
  readonly #link: FrontLink
  readonly #files: SandboxFileRequests
  readonly #readers = new Map<number, Reader>()
  #pending = 0
  /** Of processes that do not read, by organization. */
  readonly #writing = new Map<string, number>()
  #writingBytes = 0
  #isPumping = false
  #unsubscribe: (() => void) | undefined

  /** @param flows active transfers of the connection. */
  constructor(sandboxes: Sandboxes, flows: FileFlows, link: FrontLink) {
    this.#sandboxes = sandboxes
    this.#link = link
    this.#files = new SandboxFileRequests(sandboxes, flows, link)
  }

  handle(message: ToSandboxes, payload: Buffer): void {
    if (message.type === 'process_more') {
      this.#credit(message.attachment, message.bytes)
      return
    }
    if (message.type === 'process_detach') {
      this.#detach(message.attachment)
      return
    }
    if (this.#pending >= maxPending) throw new WireError('too many requests at once')
    const { request } = message
    this.#pending += 1
    this.#answer(message, payload)
      .then(
        (answer) => {
          if (answer !== 'answered') this.#link.send(answer ?? { type: 'ok', request })
        },
        (error: unknown) => this.#link.refuse(request, error),
      )
      .finally(() => {
        this.#pending -= 1
      })
  }

  /** The connection is gone: nothing is followed any more. */
  stop(): void {
    this.#unsubscribe?.()
    for (const number of [...this.#readers.keys()]) this.#detach(number)
  }

  async #answer(message: Answered, payload: Buffer): Promise<FromRunner | 'answered' | undefined> {
    const { request } = message
    switch (message.type) {
      case 'sandbox_start':
        await this.#sandboxes.start(message.spec)
        return undefined
      case 'sandbox_stop':
        await this.#sandboxes.stop(message.sandboxId, message.graceMs)
        return undefined
      case 'sandbox_pause':
        await this.#sandboxes.get(message.sandboxId).pause()
        return undefined
      case 'sandbox_resume':
        await this.#sandboxes.get(message.sandboxId).resume()
        return undefined
      case 'sandbox_network':
        this.#sandboxes.get(message.sandboxId).changeNetwork(message.network)
        return undefined
      case 'sandbox_remove':
        return {
          type: 'sandbox_removed',
          request,
          did: await this.#sandboxes.remove(message.orgId, message.sandboxId),
        }
      case 'sandbox_list':
        return { type: 'sandboxes', request, sandboxes: this.#sandboxes.list() }
      case 'sandbox_changes':
        this.#unsubscribe?.()
        this.#unsubscribe = this.#sandboxes.onChange((status) =>
          this.#link.send({ type: 'sandbox_changed', request, status }),
        )
        return undefined
      case 'sandbox_figures':
        return { type: 'sandbox_figures', request, figures: await this.#sandboxes.figures(message.sandboxIds) }
      case 'sandbox_review': {
        const { orgId, sandboxId, workspace, act, paths } = message
        const review = await this.#sandboxes.review({ orgId, sandboxId, workspace, act }, paths)
        return { type: 'sandbox_reviewed', request, review }
      }
      case 'sandbox_state_keep':
        await this.#sandboxes.get(message.sandboxId).states.keep(message.context, message.most, message.undone)
        return undefined
      case 'sandbox_state_check':
        this.#sandboxes.get(message.sandboxId).states.check(message.context, message.calls)
        return undefined
      case 'sandbox_state_rewind': {
        const files = await this.#sandboxes.get(message.sandboxId).states.rewind(message.context, message.calls)
        return { type: 'sandbox_rewound', request, files }
      }
      case 'sandbox_state_forget':
        await this.#sandboxes.get(message.sandboxId).states.forget(message.context)
        return undefined
      case 'process_list': {
        const processes = this.#sandboxes.get(message.sandboxId).processes.map(({ status }) => status)
        return { type: 'processes', request, processes }
      }
      case 'process_start': {
        const process = await this.#sandboxes.get(message.sandboxId).startProcess(message.spec)
        const answer = { type: 'process_status', request, status: process.status } as const
        if (message.windowBytes === undefined) return answer
        this.#link.send(answer)
        this.#attach({ request, afterSeq: 0, windowBytes: message.windowBytes }, process)
        return 'answered'
      }
      case 'sandbox_open_files':
        await this.#sandboxes.openFiles(message.spec)
        return undefined
      default:
        return isOfFiles(message) ? this.#files.answer(message) : this.#answerOfProcess(message, payload)
    }
  }

  async #answerOfProcess(message: OfProcess, payload: Buffer): Promise<FromRunner | undefined> {
    const sandbox = this.#sandboxes.get(message.sandboxId)
    const { processId } = message
    switch (message.type) {
      case 'process_attach':
        this.#attach(message, sandbox.process(processId))
        return undefined
      case 'process_write':
        await this.#write(sandbox.spec.orgId, sandbox.runningProcess(processId), message.to, payload)
        return undefined
      case 'process_close':
        sandbox.runningProcess(processId).close(message.what)
        return undefined
      case 'process_signal':
        sandbox.runningProcess(processId).signal(message.signal, message.target)
        return undefined
      case 'process_resize':
        sandbox.runningProcess(processId).resize(message.size)
        return undefined
      case 'process_forget':
        sandbox.forget(processId)
        return undefined
    }
  }

  async #write(orgId: string, process: SandboxProcess, to: 'stdin' | 'channel', bytes: Buffer): Promise<void> {
    if (bytes.length > inputPieceBytes)
      throw new Refusal('invalid_argument', { field: 'bytes', problem: 'is too long' })
    const cost = inputCost(bytes)
    const ofOrg = this.#writing.get(orgId) ?? 0
    if (ofOrg + cost > maxWritingBytes.perOrg || this.#writingBytes + cost > maxWritingBytes.total)
      throw new Refusal('unavailable', { reason: 'too much input waits for processes that do not read it' })
    this.#writing.set(orgId, ofOrg + cost)
    this.#writingBytes += cost
    try {
      // A view of the buffer that was read, which would pin all of it while the process does not read.
      await process.write(to, Buffer.from(bytes))
    } finally {
      this.#writingBytes -= cost
      const left = (this.#writing.get(orgId) ?? 0) - cost
      if (left > 0) this.#writing.set(orgId, left)
      else this.#writing.delete(orgId)
    }
  }

  #attach(
    { request, afterSeq, windowBytes }: { request: number; afterSeq: number; windowBytes: number },
    process: SandboxProcess,
  ): void {
    if (this.#readers.size >= maxPending || this.#readers.has(request))
      throw new Refusal('unavailable', { reason: 'too much output is followed' })
    const reader: Reader = { process, seq: process.log.startAfter(afterSeq), windowBytes, stop: [] }
    reader.stop.push(
      process.log.onChange(() => this.pump()),
      process.follow(reader),
    )
    this.#readers.set(request, reader)
    this.pump()
  }

  #credit(number: number, bytes: number): void {
    const reader = this.#readers.get(number)
    if (!reader) return
    reader.windowBytes += bytes
    this.pump()
  }

  #detach(number: number): void {
    const reader = this.#readers.get(number)
    this.#readers.delete(number)
    for (const stop of reader?.stop ?? []) stop()
  }

  /** Sends events, one per reader in turn, within their windows and until the connection is full. */
  pump(): void {
    if (this.#isPumping) return
    this.#isPumping = true
    queueMicrotask(() => {
      this.#isPumping = false
      for (let sent = true; sent; ) {
        sent = false
        for (const [number, reader] of this.#readers) {
          if (this.#link.isFull()) return
          if (this.#sendNext(number, reader)) sent = true
        }
      }
    })
  }

  #sendNext(request: number, reader: Reader): boolean {
    const event = reader.windowBytes > 0 ? reader.process.log.after(reader.seq) : undefined
    if (event === undefined) return false
    reader.seq = event.seq
    switch (event.kind) {
      case 'output':
        reader.windowBytes -= event.bytes.length
        this.#link.send({ type: 'process_output', request, seq: event.seq, stream: event.stream }, event.bytes)
        break
      case 'gap':
        this.#link.send({ type: 'process_gap', request, seq: event.seq, stream: event.stream, bytes: event.bytes })
        break
      case 'ended':
        this.#link.send({ type: 'process_ended', request, seq: event.seq, ending: event.ending })
        this.#detach(request)
        return true
    }
    reader.process.moved(reader)
    return true
  }
}

type Answered = Exclude<ToSandboxes, { type: 'process_more' | 'process_detach' }>
type OfProcess = Extract<Answered, { processId: number }>

const isOfFiles = (message: Answered): message is ToSandboxFiles => message.type.startsWith('sandbox_file_')
