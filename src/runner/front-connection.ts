import type { Socket } from 'node:net'
import { Refusal } from '../base/errors.ts'
import type { RunEvent } from '../base/run.ts'
import type { Log } from '../observe/log.ts'
import { inputOf, parseMessage } from './protocol/message-schemas.ts'
import { type FromRunner, protocolVersion, type ToRunner } from './protocol/messages.ts'
import { encodeMessage, MessageReader, WireError, writeLarge } from './protocol/wire.ts'
import type { Runs } from './runs/runs.ts'
import type { Transcript } from './runs/transcript.ts'
import { FileRequests } from './storage/file-requests.ts'
import type { OpenStorage } from './storage/storage.ts'
import { StorageRequests } from './storage/storage-requests.ts'

/** Attachments and unanswered starts of one front; beyond it the front is broken. */
const maxPending = 16_384

/** Code and input of runs that wait for a place; with more, one more is told that the queue is full. */
const maxPendingBytes = 512 * 1024 * 1024

/** Answers that a front leaves unread; output and files never come near it, since they wait for the socket. */
const maxUnreadBytes = 64 * 1024 * 1024

interface Attachment {
  runId: string
  transcript: Transcript
  afterSeq: number
  /** Output bytes that the reader has room for. */
  windowBytes: number
  stopFollowing: () => void
}

/** One front, as the runner sees it: what it asks for is done, what it sends is never trusted. */
export class FrontConnection {
  /** The runs that this front asked for, those that have not ended among them. */
  readonly started = new Set<string>()
  readonly #socket: Socket
  readonly #runs: Runs
  readonly #identity: { runnerId: string; epoch: number }
  readonly #log: Log
  readonly #reader = new MessageReader()
  readonly #attachments = new Map<number, Attachment>()
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
    identity: { runnerId: string; epoch: number },
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
    socket.on('error', (error) => log.warn({ err: error }, 'the connection to a front failed'))
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
      this.#log.error({ problem: error.message }, 'a front broke the run protocol')
      this.#socket.destroy()
    }
  }

  #dispatch(message: ToRunner, payload: Buffer): void {
    if (!this.#handshakeDone && message.type !== 'hello') throw new WireError('a front must say hello first')
    switch (message.type) {
      case 'hello':
        this.#completeHandshake(message.version)
        break
      case 'start':
        this.#start(message, payload)
        break
      case 'attach':
        this.#attach(message)
        break
      case 'more':
        this.#grant(message.attachment, message.bytes)
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
    if (version !== protocolVersion) throw new WireError(`a front speaks version ${version}, not ${protocolVersion}`)
    this.#handshakeDone = true
    this.announce(this.#trouble)
  }

  #forget(runId: string): void {
    this.started.delete(runId)
    this.#runs.acknowledge(runId)
  }

  #start(message: Extract<ToRunner, { type: 'start' }>, payload: Buffer): void {
    if (this.#pendingStarts >= maxPending) throw new WireError('too many starts at once')
    this.#expectPlace(message.request)
    const { spec, code, stdin } = inputOf(message, payload)
    if (this.#pendingBytes + payload.length > maxPendingBytes) {
      const [running, waiting] = [this.#going().length - this.#pendingStarts, this.#pendingStarts]
      this.#refuse(message.request, new Refusal('queue_full', { running, waiting, retryAfterSeconds: 1 }))
      return
    }
    this.#pendingStarts += 1
    this.#pendingBytes += payload.length
    this.#own(spec.runId)
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

  /** BOUNDARY: a front that never acknowledges must not make this grow: what has ended needs no owner. */
  #own(runId: string): void {
    if (this.started.size >= maxPending) {
      const going = new Set(this.#going())
      for (const known of this.started) if (!going.has(known)) this.started.delete(known)
    }
    this.started.add(runId)
  }

  #going(): string[] {
    const going = this.#runs.list().filter(({ state }) => state !== 'ended')
    return going.map(({ runId }) => runId)
  }

  #attach({ request, runId, afterSeq, windowBytes }: Extract<ToRunner, { type: 'attach' }>): void {
    this.#expectPlace(request)
    this.#answer(request, () => this.#follow(request, { runId, afterSeq, windowBytes }))
  }

  /** BOUNDARY: a front that reads nothing of what it follows must not make this grow. */
  #expectPlace(number: number): void {
    if (this.#attachments.size >= maxPending) throw new WireError('too many attachments at once')
    if (this.#attachments.has(number)) throw new WireError('two attachments of one number')
  }

  #follow(number: number, from: Pick<Attachment, 'runId' | 'afterSeq' | 'windowBytes'>): void {
    if (this.#socket.destroyed) return
    const transcript = this.#runs.transcript(from.runId)
    const stopFollowing = transcript.onChange(() => this.#pump())
    this.#detach(number)
    this.#attachments.set(number, { ...from, transcript, stopFollowing })
    this.#pump()
  }

  #grant(number: number, bytes: number): void {
    const attachment = this.#attachments.get(number)
    if (!attachment) return
    attachment.windowBytes += bytes
    this.#pump()
  }

  #detach(number: number): void {
    this.#attachments.get(number)?.stopFollowing()
    this.#attachments.delete(number)
  }

  /** Sends what readers may have, an event of each in turn, for as long as the socket takes it. */
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

  #sendNext(number: number, attachment: Attachment): boolean {
    const event = attachment.windowBytes > 0 ? attachment.transcript.after(attachment.afterSeq) : undefined
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

  /** Does what was asked and answers it; a refusal goes back as one, anything else is a fault of the runner's. */
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
    const refusal = error instanceof Refusal ? error : new Refusal('unavailable', { reason: 'the runner failed' })
    if (refusal !== error) this.#log.error({ err: error }, 'a request of a front failed')
    this.#send({ type: 'refused', request, code: refusal.code, details: refusal.details })
  }

  /** What is large waits for the socket, one piece at a time. Bytes of files are in buffers of their own: no copy. */
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
    if (this.#socket.writableLength > maxUnreadBytes) this.#socket.destroy(new WireError('a front does not read'))
  }

  #forgetAttachments(): void {
    for (const attachment of this.#attachments.values()) attachment.stopFollowing()
    this.#attachments.clear()
  }
}
