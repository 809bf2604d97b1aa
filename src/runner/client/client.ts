import { connect, type Socket } from 'node:net'
import { Refusal } from '../../base/errors.ts'
import type { CancelCause, RunEvent, RunInput, RunSpec } from '../../base/run.ts'
import type { Software } from '../../base/software.ts'
import type { RunnerFigures } from '../../observe/metrics.ts'
import { type FromRunner, protocolVersion, type Runner, type RunSummary, type ToRunner } from '../protocol/messages.ts'
import { encodeMessage, MessageReader, WireError } from '../protocol/wire.ts'
import { FileClient } from './file-client.ts'
import { Heartbeat } from './heartbeat.ts'
import { ImageClient } from './image-client.ts'
import { inspectionClient } from './inspection-client.ts'
import { networkClient } from './network-client.ts'
import { PendingRequests, refusalOf } from './pending-requests.ts'
import { RunSubscription } from './run-subscription.ts'
import { SandboxClient } from './sandbox-client.ts'
import { StorageClient } from './storage-client.ts'

const reconnectDelayMs = 50 // A restarted runner is normally available after it.
const farewellMs = 1_000 // For the runner to read messages that were sent before the close.
type FollowMessage = Extract<FromRunner, { type: RunEvent['kind'] }>

/** The client of the run protocol in the front. Reconnects until it is closed. */
export class RunnerClient implements Runner {
  readonly #line = {
    ask: (message: (request: number) => ToRunner, numbered?: (request: number) => void, payload = noBytes) =>
      this.#askNumbered(message, numbered, payload),
    send: (message: ToRunner, payload = noBytes) => this.#send(message, payload),
  }
  readonly files = new FileClient(this.#line)
  readonly storage = new StorageClient((message) => this.#ask(message))
  readonly inspect = inspectionClient((message) => this.#ask(message))
  readonly networks = networkClient((message) => this.#ask(message))
  readonly sandboxes = new SandboxClient(this.#line, this.files)
  readonly images = new ImageClient(this.#line)
  readonly #heartbeat: Heartbeat
  readonly #socketPath: string
  readonly #onTrouble: (problem: string) => void
  readonly #pending = new PendingRequests()
  readonly #subscriptions = new Map<number, RunSubscription>()
  /** Runs that were started here and not yet attached to; the caller that starts a run also follows it. */
  readonly #unread = new Map<string, RunSubscription>()
  #socket: Socket | undefined
  #identity: { runnerId: string; epoch: number } | undefined
  /** Problem of the last connection attempt; reported again only if it changes. */
  #trouble: string | undefined
  storageProblem: string | undefined
  #readiness: Runner['readiness'] = { ready: false, reason: 'the runner is not connected yet' }
  #lastRequest = 0
  #timer: NodeJS.Timeout | undefined
  #closed = false

  /** @param onTrouble called if a runner violates the protocol or has another protocol version. */
  constructor(socketPath: string, onTrouble: (problem: string) => void) {
    this.#socketPath = socketPath
    this.#onTrouble = onTrouble
    this.#heartbeat = new Heartbeat(async () => {
      if (this.#socket) await this.#ask((request) => ({ type: 'ping', request }))
    })
    this.#connect()
  }

  get software(): Software {
    return this.images.software
  }

  get identity(): { runnerId: string; epoch: number } | undefined {
    return this.#identity
  }

  get readiness(): Runner['readiness'] {
    return this.#heartbeat.isSilent ? { ready: false, reason: 'the runner does not respond' } : this.#readiness
  }

  async start(spec: RunSpec, input: RunInput): Promise<void> {
    const sizes = { codeBytes: input.code.length, ...(input.stdin && { stdinBytes: input.stdin.length }) }
    const subscription = this.#newSubscription(spec.runId, 0)
    const asking = this.#ask(
      (request) => {
        this.#register(subscription, request)
        return { type: 'start', request, spec, windowBytes: subscription.takeWindow(), ...sizes }
      },
      input.code,
      input.stdin ?? noBytes,
    )
    await this.#expectOk(subscription, asking)
    this.#unread.set(spec.runId, subscription)
  }

  attach(runId: string, afterSeq: number): AsyncIterableIterator<RunEvent, void, undefined> {
    const started = afterSeq === 0 ? this.#unread.get(runId) : undefined
    if (started) {
      this.#unread.delete(runId)
      return started.events
    }
    const subscription = this.#newSubscription(runId, afterSeq)
    this.#open(subscription).catch((error: Error) => subscription.events.fail(error))
    return subscription.events
  }

  async cancel(runId: string, cause: CancelCause): Promise<void> {
    await this.#ask((request) => ({ type: 'cancel', request, runId, cause }))
  }

  async outlive(runId: string): Promise<void> {
    await this.#ask((request) => ({ type: 'outlive', request, runId }))
  }

  async list(): Promise<RunSummary[]> {
    const answer = await this.#ask((request) => ({ type: 'list', request }))
    return answer.type === 'runs' ? answer.runs : []
  }

  async stats(): Promise<RunnerFigures> {
    const answer = await this.#ask((request) => ({ type: 'stats', request }))
    if (answer.type !== 'stats') throw new WireError(`a runner answered ${answer.type} to stats`)
    return answer.figures
  }

  async acknowledge(runId: string): Promise<void> {
    await this.#ask((request) => ({ type: 'acknowledge', request, runId }))
  }

  async retireKey(keyId: string): Promise<void> {
    await this.#ask((request) => ({ type: 'retire_key', request, keyId }))
  }

  /** Fails pending requests, ends followed runs as lost, and resolves when the runner has read all messages, or is late. */
  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#heartbeat.stop()
    this.#lose('the server is stopping')
    this.#endSubscriptions()
    const socket = this.#socket
    if (socket === undefined || socket.destroyed) return
    const closed = new Promise((resolve) => socket.once('close', resolve))
    const late = setTimeout(() => socket.destroy(), farewellMs)
    socket.end()
    await closed
    clearTimeout(late)
  }

  #connect(): void {
    const socket = connect(this.#socketPath)
    const reader = new MessageReader()
    socket.on('connect', () => socket.write(encodeMessage({ type: 'hello', version: protocolVersion })))
    socket.on('data', (chunk: Buffer) => {
      try {
        for (const { header, payload } of reader.push(chunk)) this.#receive(socket, header as FromRunner, payload)
      } catch (error) {
        if (!(error instanceof WireError)) throw error
        this.#tellTrouble(error.message)
        socket.destroy()
      }
    })
    socket.on('error', () => undefined) // Only the close matters.
    socket.on('close', () => this.#disconnected(socket))
  }

  #tellTrouble(problem: string): void {
    if (problem !== this.#trouble) this.#onTrouble(problem)
    this.#trouble = problem
  }

  /** Makes a second attempt immediately. If it fails, the runner is gone with every followed run. */
  #disconnected(socket: Socket): void {
    const wasConnected = this.#socket === socket
    this.#socket = undefined
    if (this.#closed) return
    this.#lose('the runner is not running; it is being restarted')
    if (!wasConnected) this.#endSubscriptions()
    if (wasConnected) this.#connect()
    else this.#timer = setTimeout(() => this.#connect(), reconnectDelayMs)
  }

  #lose(reason: string): void {
    this.#readiness = { ready: false, reason }
    this.#pending.lose(reason)
    this.files.lose(reason)
    this.sandboxes.lose(reason)
  }

  #endSubscriptions(): void {
    for (const subscription of this.#subscriptions.values()) subscription.lose()
    this.#subscriptions.clear()
  }

  #receive(socket: Socket, message: FromRunner, payload: Buffer): void {
    if (this.sandboxes.tunnels.takes(message, payload)) return
    switch (message.type) {
      case 'hello':
        this.#greeted(socket, message)
        break
      case 'ready':
        this.#readiness = message.ready ? { ready: true } : { ready: false, reason: message.reason }
        this.storageProblem = message.storage
        break
      case 'ok':
      case 'runs':
      case 'networked_runs':
      case 'stats':
      case 'inspected':
      case 'files_listing':
      case 'files_status':
      case 'files_opened':
      case 'files_written':
      case 'files_deleted':
      case 'storage_done':
      case 'storage_status':
      case 'storage_sizes':
      case 'storage_names':
      case 'sandbox_removed':
      case 'sandbox_reviewed':
      case 'sandbox_rewound':
      case 'sandboxes':
      case 'sandbox_figures':
      case 'process_status':
      case 'processes':
      case 'images':
      case 'image_done':
      case 'images_collected':
      case 'sandbox_file_status':
      case 'sandbox_file_listing':
      case 'sandbox_file_opened':
        this.#pending.answer(message.request, message)
        break
      case 'software':
      case 'image_progress':
        this.images.take(message)
        break
      case 'refused':
        this.#refused(message.request, refusalOf(message))
        break
      case 'files_bytes':
      case 'files_end':
      case 'files_room':
        this.files.take(message, payload)
        if (message.type === 'files_end') this.sandboxes.files.end(message.request)
        break
      case 'sandbox_changed':
      case 'sandbox_file_changed':
      case 'process_output':
      case 'process_gap':
      case 'process_ended':
        this.sandboxes.take(message, payload)
        break
      case 'running':
      case 'output':
      case 'gap':
      case 'image':
      case 'ended':
        this.#follow(message, payload)
        break
    }
  }

  /** A pending request, or a file transfer after the response to its request. */
  #refused(request: number, refusal: Refusal): void {
    this.#pending.refuse(request, refusal)
    this.files.refuse(request, refusal)
    this.sandboxes.files.end(request, refusal)
  }

  #follow({ request, type, ...rest }: FollowMessage, payload: Buffer): void {
    const subscription = this.#subscriptions.get(request)
    if (type === 'ended') this.#subscriptions.delete(request)
    // The payload is a view of the read buffer; it is copied so that a small one does not retain a large buffer.
    const bytes = type === 'output' || type === 'image' ? { bytes: Buffer.from(payload) } : {}
    const isAccepted = subscription?.push({ kind: type, ...rest, ...bytes } as RunEvent)
    if (isAccepted === false) throw new WireError('the runner sent more output than it has credit for')
  }

  #greeted(socket: Socket, { version, runnerId, epoch }: Extract<FromRunner, { type: 'hello' }>): void {
    if (version !== protocolVersion)
      throw new WireError(`the runner speaks version ${version} of the run protocol, not ${protocolVersion}`)
    this.#socket = socket
    this.#trouble = undefined
    const isSame = this.#identity?.epoch === epoch
    this.#identity = { runnerId, epoch }
    const following = [...this.#subscriptions.values()]
    this.#subscriptions.clear()
    for (const subscription of following) {
      if (isSame) this.#open(subscription).catch(() => subscription.lose())
      else subscription.lose()
    }
  }

  /** Registers before the request is sent, since events can arrive together with the response. */
  async #open(subscription: RunSubscription): Promise<void> {
    const asking = this.#ask((request) => {
      this.#register(subscription, request)
      const { runId, seq: afterSeq } = subscription
      return { type: 'attach', request, runId, afterSeq, windowBytes: subscription.takeWindow() }
    })
    await this.#expectOk(subscription, asking)
  }

  #newSubscription(runId: string, afterSeq: number): RunSubscription {
    const subscription: RunSubscription = new RunSubscription(runId, afterSeq, {
      grant: (bytes) => this.#send({ type: 'more', attachment: subscription.number, bytes }),
      abandoned: () => {
        const attachment = subscription.number
        if (this.#subscriptions.delete(attachment)) this.#send({ type: 'detach', attachment })
      },
    })
    return subscription
  }

  #register(subscription: RunSubscription, request: number): void {
    subscription.number = request
    this.#subscriptions.set(request, subscription)
  }

  async #expectOk(subscription: RunSubscription, asking: Promise<FromRunner>): Promise<void> {
    try {
      await asking
    } catch (error) {
      this.#subscriptions.delete(subscription.number)
      throw error
    }
  }

  #ask(message: (request: number) => ToRunner, ...payload: Uint8Array[]): Promise<FromRunner> {
    return this.#askNumbered(message, undefined, ...payload)
  }

  #askNumbered(
    message: (request: number) => ToRunner,
    numbered: ((request: number) => void) | undefined,
    ...payload: Uint8Array[]
  ): Promise<FromRunner> {
    const socket = this.#socket
    if (!socket || this.#heartbeat.isSilent) {
      const { readiness } = this
      const reason = readiness.ready ? 'the runner is not connected' : readiness.reason
      return Promise.reject(new Refusal('unavailable', { reason }))
    }
    const request = ++this.#lastRequest
    numbered?.(request)
    const answer = this.#pending.add(request)
    socket.write(encodeMessage(message(request), ...payload))
    return answer
  }

  #send(message: ToRunner, payload: Uint8Array = noBytes): void {
    this.#socket?.write(encodeMessage(message, payload))
  }
}

const noBytes = new Uint8Array(0)
