import type { Socket } from 'node:net'
import { diskRefusalOf } from '../base/disk-errors.ts'
import { Refusal } from '../base/errors.ts'
import type { RunEvent } from '../base/run.ts'
import type { Log } from '../observe/log.ts'
import { inputOf, parseMessage } from './protocol/message-schemas.ts'
import { type FromRunner, protocolVersion, type RunnerIdentity, type ToRunner } from './protocol/messages.ts'
import { encodeMessage, MessageReader, WireError, writeLarge } from './protocol/wire.ts'
import type { OutputLog } from './runs/output-log.ts'
import type { Runs } from './runs/runs.ts'
import { FileRequests } from './storage/file-requests.ts'
import type { OpenStorage } from './storage/storage.ts'
import { StorageRequests } from './storage/storage-requests.ts'

/** Attachments and unanswered starts of one front; more of them are a protocol violation. */
const maxPending = 16_384

/** Code and input of queued runs; beyond this, further runs are refused as queue_full. */
const maxPendingBytes = 512 * 1024 * 1024

/** Answers that a front leaves unread. Output and files are not counted, since they are sent only when the socket drains. */
const maxUnreadBytes = 64 * 1024 * 1024

interface RunReader {
  runId: string
  outputLog: OutputLog
  afterSeq: number
  /** Output bytes that may still be sent. */
  windowBytes: number
  unsubscribe: () => void
}

/** A connection to one front. Its messages are untrusted input. */
export class FrontConnection {
  /** Runs that this front started; it contains all of them that have not ended. */
  readonly started = new Set<string>()
  readonly #socket: Socket
  readonly #runs: Runs
  readonly #identity: RunnerIdentity
  readonly #log: Log
  readonly #reader = new MessageReader()
  readonly #attachments = new Map<number, RunReader>()
  readonly #files: FileRequests
  readonly #storage: StorageRequests
  #trouble: string | undefined
  #handshakeDone = false
  #pendingStarts = 0
  #pendingBytes = 0
  #pumping = false
  #waitingForDrain: (() => void)[] = []

  constructor(
    socket: Socket,
    runs: Runs,
    storage: OpenStorage | undefined,
    identity: RunnerIdentity,
    trouble: string | undefined,
    log: Log,
  ) {
    this.#socket = socket
    this.#runs = runs
    this.#identity = identity
    this.#trouble = trouble
    this.#log = log
    this.#files = new FileRequests(
      storage,
      (message) => this.#send(message),
      (message, payload) => this.#sendWhenDrained(message, payload),
      (request, error) => this.#refuse(request, error),
    )
    this.#storage = new StorageRequests(
      storage,
      (message) => this.#send(message),
      (request, error) => this.#refuse(request, error),
    )
    socket.on('data', (chunk) => this.#receive(chunk))
    socket.on('drain', () => {
      this.#pump()
      this.#wakeForDrain()
    })
    socket.on('error', (error) => log.warn({ err: error }, 'connection to front failed'))
    socket.on('close', () => {
      this.#forgetAttachments()
      this.#files.stop()
      this.#wakeForDrain()
    })
  }

  attachedRuns(): Iterable<string> {
    return [...this.#attachments.values()].map((attachment) => attachment.runId)
  }

  announce(trouble: string | undefined): void {
    this.#trouble = trouble
    if (this.#handshakeDone) this.#send({ type: 'ready', ready: trouble === undefined, reason: trouble ?? '' })
  }

  close(): void {
    this.#socket.end()
    this.#socket.destroySoon()
  }

  /** BOUNDARY: a front that breaks the protocol loses its connection, nothing else. */
  #receive(chunk: Buffer): void {
    try {
      for (const { header, payload } of this.#reader.push(chunk)) this.#dispatch(parseMessage(header), payload)
    } catch (error) {
      if (!(error instanceof WireError)) throw error
      this.#log.error({ problem: error.message }, 'front violated the run protocol')
      this.#socket.destroy()
    }
  }

  #dispatch(message: ToRunner, payload: Buffer): void {
    if (!this.#handshakeDone && message.type !== 'hello') throw new WireError('hello is not the first message')
    switch (message.type) {
      case 'hello':
        this.#completeHandshake(message.version)
        break
      case 'ping':
        this.#send({ type: 'ok', request: message.request })
        break
      case 'start':
        this.#start(message, payload)
        break
      case 'attach':
        this.#attach(message)
        break
      case 'more':
        this.#credit(message.attachment, message.bytes)
        break
      case 'detach':
        this.#detach(message.attachment)
        break
      case 'cancel':
        this.#answer(message.request, () => this.#runs.cancel(message.runId, message.cause))
        break
      case 'outlive':
        this.#answer(message.request, () => this.#runs.outlive(message.runId))
        break
      case 'acknowledge':
        this.#answer(message.request, () => this.#forget(message.runId))
        break
      case 'list':
        this.#send({ type: 'runs', request: message.request, runs: this.#runs.list() })
        break
      case 'stats':
        this.#send({ type: 'stats', request: message.request, figures: this.#runs.figures() })
        break
      case 'retire_key':
        this.#answer(message.request, () => this.#runs.retireKey(message.keyId))
        break
      case 'storage_create':
      case 'storage_remove':
      case 'storage_fork':
      case 'storage_inspect':
      case 'storage_sizes':
      case 'storage_names':
        this.#storage.handle(message)
        break
      default:
        this.#files.handle(message, payload)
    }
  }

  #completeHandshake(version: number): void {
    this.#send({ type: 'hello', version: protocolVersion, ...this.#identity })
    if (version !== protocolVersion)
      throw new WireError(`the front uses protocol version ${version}, not ${protocolVersion}`)
    this.#handshakeDone = true
    this.announce(this.#trouble)
  }

  #forget(runId: string): void {
    this.started.delete(runId)
    this.#runs.acknowledge(runId)
  }

  #start(message: Extract<ToRunner, { type: 'start' }>, payload: Buffer): void {
    if (this.#pendingStarts >= maxPending) throw new WireError('too many starts at once')
    this.#requireFreeAttachment(message.request)
    const { spec, code, stdin } = inputOf(message, payload)
    if (this.#pendingBytes + payload.length > maxPendingBytes) {
      const [running, waiting] = [this.#activeRunIds().length - this.#pendingStarts, this.#pendingStarts]
      this.#refuse(message.request, new Refusal('queue_full', { running, waiting, retryAfterSeconds: 1 }))
      return
    }
    this.#pendingStarts += 1
    this.#pendingBytes += payload.length
    this.#recordStarted(spec.runId)
    const { request, windowBytes } = message
    this.#answer(request, async () => {
      try {
        await this.#runs.start(spec, { code, stdin })
        this.#follow(request, { runId: spec.runId, afterSeq: 0, windowBytes })
      } catch (error) {
        this.started.delete(spec.runId)
        throw error
      } finally {
        this.#pendingStarts -= 1
        this.#pendingBytes -= payload.length
      }
    })
  }

  /** BOUNDARY: bounded although a front may never acknowledge: runs that have ended are removed. */
  #recordStarted(runId: string): void {
    if (this.started.size >= maxPending) {
      const active = new Set(this.#activeRunIds())
      for (const known of this.started) if (!active.has(known)) this.started.delete(known)
    }
    this.started.add(runId)
  }

  #activeRunIds(): string[] {
    const active = this.#runs.list().filter(({ state }) => state !== 'ended')
    return active.map(({ runId }) => runId)
  }

  #attach({ request, runId, afterSeq, windowBytes }: Extract<ToRunner, { type: 'attach' }>): void {
    this.#requireFreeAttachment(request)
    this.#answer(request, () => this.#follow(request, { runId, afterSeq, windowBytes }))
  }

  /** BOUNDARY: bounded although a front may never read. */
  #requireFreeAttachment(number: number): void {
    if (this.#attachments.size >= maxPending) throw new WireError('too many attachments at once')
    if (this.#attachments.has(number)) throw new WireError('two attachments with one number')
  }

  #follow(number: number, from: Pick<RunReader, 'runId' | 'afterSeq' | 'windowBytes'>): void {
    if (this.#socket.destroyed) return
    const outputLog = this.#runs.outputLog(from.runId)
    const unsubscribe = outputLog.onChange(() => this.#pump())
    this.#detach(number)
    this.#attachments.set(number, { ...from, outputLog, unsubscribe })
    this.#pump()
  }

  #credit(number: number, bytes: number): void {
    const attachment = this.#attachments.get(number)
    if (!attachment) return
    attachment.windowBytes += bytes
    this.#pump()
  }

  #detach(number: number): void {
    this.#attachments.get(number)?.unsubscribe()
    this.#attachments.delete(number)
  }

  /** Sends events, one per reader in turn, within their windows and until the socket is full. */
  #pump(): void {
    if (this.#pumping) return
    this.#pumping = true
    queueMicrotask(() => {
      this.#pumping = false
      for (let sent = true; sent; ) {
        sent = false
        for (const [number, attachment] of this.#attachments) {
          if (this.#socket.writableNeedDrain || this.#socket.destroyed) return
          if (this.#sendNext(number, attachment)) sent = true
        }
      }
    })
  }

  #sendNext(number: number, attachment: RunReader): boolean {
    const event = attachment.windowBytes > 0 ? attachment.outputLog.after(attachment.afterSeq) : undefined
    if (event === undefined) return false
    attachment.afterSeq = event.seq
    if (event.kind === 'output' || event.kind === 'image') attachment.windowBytes -= event.bytes.length
    this.#sendEvent(number, event)
    if (event.kind === 'ended') this.#detach(number)
    return true
  }

  #sendEvent(request: number, event: RunEvent): void {
    switch (event.kind) {
      case 'running':
        this.#send({ type: 'running', request, seq: event.seq })
        break
      case 'output':
        this.#send({ type: 'output', request, seq: event.seq, stream: event.stream }, event.bytes)
        break
      case 'gap':
        this.#send({ type: 'gap', request, seq: event.seq, stream: event.stream, bytes: event.bytes })
        break
      case 'image':
        this.#send({ type: 'image', request, seq: event.seq, mimeType: event.mimeType }, event.bytes)
        break
      case 'ended':
        this.#send({ type: 'ended', request, seq: event.seq, result: event.result })
        break
    }
  }

  /** Handles a request and answers it: `ok`, a refusal, or `unavailable` for a fault, which is logged. */
  #answer(request: number, work: () => Promise<void> | void): void {
    const refuse = (error: unknown) => this.#refuse(request, error)
    try {
      const done = work()
      if (done) done.then(() => this.#send({ type: 'ok', request }), refuse)
      else this.#send({ type: 'ok', request })
    } catch (error) {
      if (error instanceof WireError) throw error
      refuse(error)
    }
  }

  #refuse(request: number, error: unknown): void {
    const refusal =
      error instanceof Refusal
        ? error
        : (diskRefusalOf(error) ?? new Refusal('unavailable', { reason: 'the runner failed' }))
    if (refusal !== error) this.#log.error({ err: error }, 'request of front failed')
    this.#send({ type: 'refused', request, code: refusal.code, details: refusal.details })
  }

  /** Sends a large message once the socket has drained. The payload is not copied. */
  async #sendWhenDrained(header: FromRunner, payload: Uint8Array = new Uint8Array()): Promise<void> {
    while (this.#socket.writableNeedDrain && !this.#socket.destroyed)
      await new Promise<void>((resolve) => this.#waitingForDrain.push(resolve))
    if (!this.#socket.destroyed) writeLarge(this.#socket, header, payload)
  }

  #wakeForDrain(): void {
    const waiting = this.#waitingForDrain
    this.#waitingForDrain = []
    for (const wake of waiting) wake()
  }

  #send(header: FromRunner, ...payload: Uint8Array[]): void {
    if (this.#socket.destroyed) return
    this.#socket.write(encodeMessage(header, ...payload))
    if (this.#socket.writableLength > maxUnreadBytes) this.#socket.destroy(new WireError('the front does not read'))
  }

  #forgetAttachments(): void {
    for (const attachment of this.#attachments.values()) attachment.unsubscribe()
    this.#attachments.clear()
  }
}
