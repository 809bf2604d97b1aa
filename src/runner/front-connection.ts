import type { Socket } from 'node:net'
import { diskRefusalOf } from '../base/disk-errors.ts'
import { Refusal } from '../base/errors.ts'
import type { Log } from '../observe/log.ts'
import type { FrontLink } from './front-link.ts'
import { ImageRequests } from './images/image-requests.ts'
import { InspectionRequests } from './inspection.ts'
import { isAboutImages } from './protocol/image-messages.ts'
import { inputOf, parseMessage } from './protocol/message-schemas.ts'
import { type FromRunner, protocolVersion, type RunnerIdentity, type ToRunner } from './protocol/messages.ts'
import { isAboutNetworks, type ToNetworks } from './protocol/network-messages.ts'
import { isToTunnel } from './protocol/tunnel-messages.ts'
import { encodeMessage, MessageReader, WireError, writeCollected, writeLarge } from './protocol/wire.ts'
import type { RunnerParts } from './runner-parts.ts'
import { messageOf } from './runs/event-message.ts'
import { PendingStarts } from './runs/pending-starts.ts'
import type { RunReader } from './runs/run-reader.ts'
import type { Runs } from './runs/runs.ts'
import { isOfSandboxes, SandboxRequests } from './sandboxes/sandbox-requests.ts'
import { Tunnels } from './sandboxes/tunnels.ts'
import type { FileFlows } from './storage/file-flows.ts'
import { FileRequests } from './storage/file-requests.ts'
import { isOfStorage, StorageRequests } from './storage/storage-requests.ts'

/** Attachments and unanswered starts of one front; more of them are a protocol violation. */
const maxPending = 16_384

/** Answers that a front leaves unread. Output and files are not counted, since they are sent only when the socket drains. */
const maxUnreadBytes = 64 * 1024 * 1024

const noBytes = new Uint8Array(0)

/** A connection to one front. Its messages are untrusted input. */
export class FrontConnection {
  /** Runs that this front started; it contains all of them that have not ended. */
  readonly started = new Set<string>()
  readonly #socket: Socket
  readonly #runs: Runs
  readonly #identity: RunnerIdentity
  readonly #inspection: InspectionRequests
  readonly #log: Log
  readonly #reader = new MessageReader()
  readonly #attachments = new Map<number, RunReader>()
  readonly #files: FileRequests
  readonly #storage: StorageRequests
  readonly #sandboxes: SandboxRequests
  readonly #tunnels: Tunnels
  readonly #images: RunnerParts['images']
  readonly #imageRequests: ImageRequests
  #readiness: FromRunner
  #handshakeDone = false
  readonly #pending = new PendingStarts()
  #pumping = false
  #waitingForDrain: (() => void)[] = []

  /** @param isRoot whether the peer is root of the machine. @param readiness what the front receives first. */
  constructor(
    socket: Socket,
    { runs, storage, sandboxes, images, inspect, identity }: RunnerParts & { identity: RunnerIdentity },
    isRoot: boolean,
    readiness: FromRunner,
    log: Log,
  ) {
    this.#socket = socket
    this.#runs = runs
    this.#images = images
    this.#identity = identity
    this.#readiness = readiness
    this.#log = log
    const link: FrontLink = {
      send: (message, payload = noBytes) => this.#send(message, payload),
      sendLarge: (message, payload) => this.#sendWhenDrained(message, payload),
      refuse: (request, error) => this.#refuse(request, error),
      isFull: () => socket.writableNeedDrain || socket.destroyed,
    }
    const flows: FileFlows = new Map()
    this.#files = new FileRequests(storage, flows, link)
    this.#storage = new StorageRequests(storage, link)
    this.#sandboxes = new SandboxRequests(sandboxes, flows, link)
    this.#tunnels = new Tunnels(sandboxes, link)
    this.#inspection = new InspectionRequests(inspect, link.send, link.refuse)
    this.#imageRequests = new ImageRequests(images, isRoot, link.send, link.refuse)
    socket.on('data', (chunk) => this.#receive(chunk))
    socket.on('drain', () => {
      this.#pump()
      this.#sandboxes.pump()
      this.#tunnels.pump()
      this.#wakeForDrain()
    })
    socket.on('error', (error) => log.warn({ err: error }, 'connection to front failed'))
    socket.on('close', () => {
      this.#forgetAttachments()
      this.#files.stop()
      this.#sandboxes.stop()
      this.#tunnels.stop()
      this.#imageRequests.stop()
      this.#wakeForDrain()
    })
  }

  attachedRuns(): Iterable<string> {
    return [...this.#attachments.values()].map((attachment) => attachment.runId)
  }

  announce(readiness: FromRunner): void {
    this.#readiness = readiness
    if (this.#handshakeDone) this.#send(readiness)
  }

  announceSoftware(): void {
    if (this.#handshakeDone && this.#images) this.#send({ type: 'software', ...this.#images.software })
  }

  close(): void {
    this.#socket.destroySoon()
  }

  /** BOUNDARY: a front that breaks the protocol loses its connection, nothing else. */
  #receive(chunk: Buffer): void {
    try {
      const messages = this.#reader.push(chunk)
      for (const { header, payload } of messages) this.#dispatch(parseMessage(header, this.#refuse), payload)
    } catch (error) {
      if (!(error instanceof WireError)) throw error
      this.#log.error({ problem: error.message }, 'front violated the run protocol')
      this.#socket.destroy()
    }
  }

  #dispatch(message: ToRunner | undefined, payload: Buffer): void {
    if (!this.#handshakeDone && message?.type !== 'hello') throw new WireError('hello is not the first message')
    if (!message) return
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
      case 'inspect':
        this.#inspection.handle(message)
        break
      case 'retire_key':
        this.#answer(message.request, () => this.#runs.retireKey(message.keyId))
        break
      default:
        if (isOfSandboxes(message)) this.#sandboxes.handle(message, payload)
        else if (isAboutNetworks(message)) this.#answerOnNetworks(message)
        else if (isToTunnel(message)) this.#tunnels.handle(message, payload)
        else if (isOfStorage(message)) this.#storage.handle(message)
        else if (isAboutImages(message)) this.#imageRequests.handle(message)
        else this.#files.handle(message, payload)
    }
  }

  #answerOnNetworks(message: ToNetworks): void {
    const { request } = message
    if (message.type === 'network_runs') this.#send({ type: 'networked_runs', request, runs: this.#runs.networked() })
    else this.#answer(request, () => this.#runs.changeNetwork(message.runId, message.network))
  }

  #completeHandshake(version: number): void {
    this.#send({ type: 'hello', version: protocolVersion, ...this.#identity })
    if (version !== protocolVersion)
      throw new WireError(`the front uses protocol version ${version}, not ${protocolVersion}`)
    this.#handshakeDone = true
    this.announceSoftware()
    this.announce(this.#readiness)
  }

  #forget(runId: string): void {
    this.started.delete(runId)
    this.#runs.acknowledge(runId)
  }

  #start(message: Extract<ToRunner, { type: 'start' }>, payload: Buffer): void {
    if (this.#pending.count >= maxPending) throw new WireError('too many starts at once')
    this.#requireFreeAttachment(message.request)
    const { spec, code, stdin } = inputOf(message, payload)
    const { orgId } = spec
    if (!this.#pending.add(orgId, payload.length)) {
      const { count } = this.#pending
      const running = this.#activeRunIds().length - count
      this.#refuse(message.request, new Refusal('queue_full', { running, waiting: count, retryAfterSeconds: 1 }))
      return
    }
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
        this.#pending.remove(orgId, payload.length)
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
    const afterSeq = outputLog.startAfter(from.afterSeq)
    this.#attachments.set(number, { ...from, afterSeq, outputLog, unsubscribe })
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
    this.#send(...messageOf(number, event))
    if (event.kind === 'ended') this.#detach(number)
    return true
  }

  /** Answers a request: `ok`, a refusal, or `unavailable` for a fault, which is logged. */
  #answer(request: number, work: () => Promise<void> | void): void {
    try {
      const done = work()
      const refuse = (error: unknown) => this.#refuse(request, error)
      if (done) done.then(() => this.#send({ type: 'ok', request }), refuse)
      else this.#send({ type: 'ok', request })
    } catch (error) {
      if (error instanceof WireError) throw error
      this.#refuse(request, error)
    }
  }

  readonly #refuse = (request: number, error: unknown): void => {
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
    writeCollected(this.#socket, encodeMessage(header, ...payload))
    if (this.#socket.writableLength > maxUnreadBytes) this.#socket.destroy(new WireError('the front does not read'))
  }

  #forgetAttachments(): void {
    for (const attachment of this.#attachments.values()) attachment.unsubscribe()
    this.#attachments.clear()
  }
}
