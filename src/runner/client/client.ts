import { connect, type Socket } from 'node:net'
import { Refusal, type RefusalCode, refusals } from '../../base/errors.ts'
import type { CancelCause, RunEvent, RunInput, RunSpec } from '../../base/run.ts'
import { noSoftware, type Software } from '../../base/software.ts'
import type { RunnerFigures } from '../../observe/metrics.ts'
import { type FromRunner, protocolVersion, type Runner, type RunSummary, type ToRunner } from '../protocol/messages.ts'
import { encodeMessage, MessageReader, WireError } from '../protocol/wire.ts'
import { FileClient } from './file-client.ts'
import { Heartbeat } from './heartbeat.ts'
import { RunSubscription } from './run-subscription.ts'
import { StorageClient } from './storage-client.ts'

/** Interval of connection attempts, in milliseconds. A restarted runner is normally available after this time. */
const reconnectDelayMs = 50

/** Time for the runner to read messages that were sent before the close, in milliseconds. */
const farewellMs = 1_000

interface Pending {
  resolve(answer: FromRunner): void
  reject(error: Error): void
}

type Readiness = Runner['readiness']
type FollowMessage = Extract<FromRunner, { type: RunEvent['kind'] }>

/** The client of the run protocol in the front. Reconnects until it is closed. */
export class RunnerClient implements Runner {
  readonly files: FileClient
  readonly storage: StorageClient
  readonly #heartbeat: Heartbeat
  readonly #socketPath: string
  readonly #onTrouble: (problem: string) => void
  readonly #pending = new Map<number, Pending>()
  readonly #subscriptions = new Map<number, RunSubscription>()
  /** Runs that were started here and not yet attached to; the caller that starts a run also follows it. */
  readonly #unread = new Map<string, RunSubscription>()
  #socket: Socket | undefined
  #identity: { runnerId: string; epoch: number } | undefined
  #software = noSoftware
  /** Problem of the last connection attempt; reported again only if it changes. */
  #trouble: string | undefined
  #readiness: Readiness = { ready: false, reason: 'the runner is not connected yet' }
  #lastRequest = 0
  #timer: NodeJS.Timeout | undefined
  #closed = false

  /** @param onTrouble called if a runner violates the protocol or has another protocol version. */
  constructor(socketPath: string, onTrouble: (problem: string) => void) {
    this.#socketPath = socketPath
    this.#onTrouble = onTrouble
    this.files = new FileClient({
      ask: (message, numbered) => this.#askNumbered(message, numbered),
      send: (message, payload = noBytes) => this.#send(message, payload),
    })
    this.storage = new StorageClient((message) => this.#ask(message))
    this.#heartbeat = new Heartbeat(() => this.#ping())
    this.#connect()
  }

  get software(): Software {
    return this.#software
  }

  get identity(): { runnerId: string; epoch: number } | undefined {
    return this.#identity
  }

  get readiness(): Readiness {
    return this.#heartbeat.isSilent ? notResponding : this.#readiness
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

  /**
   * Closes the connection. Pending requests fail as unavailable, and followed runs end as lost. Resolves when the runner
   * has read all messages, including the last acknowledgements, or after a time limit.
   */
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
    socket.on('error', () => {
      // Only the close matters; the next attempt shows whether the problem persists.
    })
    socket.on('close', () => this.#disconnected(socket))
  }

  async #ping(): Promise<void> {
    if (this.#socket) await this.#ask((request) => ({ type: 'ping', request }))
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
    if (wasConnected) {
      this.#connect()
      return
    }
    this.#endSubscriptions()
    this.#timer = setTimeout(() => this.#connect(), reconnectDelayMs)
  }

  #lose(reason: string): void {
    this.#readiness = { ready: false, reason }
    for (const pending of this.#pending.values()) pending.reject(new Refusal('unavailable', { reason }))
    this.#pending.clear()
    this.files.lose(reason)
  }

  #endSubscriptions(): void {
    for (const subscription of this.#subscriptions.values()) subscription.lose()
    this.#subscriptions.clear()
  }

  #receive(socket: Socket, message: FromRunner, payload: Buffer): void {
    switch (message.type) {
      case 'hello':
        this.#greeted(socket, message)
        break
      case 'ready':
        this.#readiness = message.ready ? { ready: true } : { ready: false, reason: message.reason }
        break
      case 'ok':
      case 'runs':
      case 'stats':
      case 'files_listing':
      case 'files_status':
      case 'files_opened':
      case 'files_written':
      case 'files_deleted':
      case 'storage_done':
      case 'storage_status':
      case 'storage_sizes':
      case 'storage_names':
        this.#settle(message.request)?.resolve(message)
        break
      case 'refused':
        this.#refused(message.request, refusalOf(message))
        break
      case 'files_bytes':
      case 'files_end':
      case 'files_room':
        this.files.take(message, payload)
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
    this.#settle(request)?.reject(refusal)
    this.files.refuse(request, refusal)
  }

  #follow({ request, type, ...rest }: FollowMessage, payload: Buffer): void {
    const subscription = this.#subscriptions.get(request)
    if (type === 'ended') this.#subscriptions.delete(request)
    // The payload is a view of the read buffer; it is copied so that a small one does not retain a large buffer.
    const bytes = type === 'output' || type === 'image' ? { bytes: Buffer.from(payload) } : {}
    const isAccepted = subscription?.push({ kind: type, ...rest, ...bytes } as RunEvent)
    if (isAccepted === false) throw new WireError('the runner sent more output than it has credit for')
  }

  #greeted(socket: Socket, { version, runnerId, epoch, software }: Extract<FromRunner, { type: 'hello' }>): void {
    if (version !== protocolVersion) {
      throw new WireError(`the runner speaks version ${version} of the run protocol, not ${protocolVersion}`)
    }
    this.#socket = socket
    this.#trouble = undefined
    const isSame = this.#identity?.epoch === epoch
    this.#identity = { runnerId, epoch }
    this.#software = software
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
    return new Promise((resolve, reject) => {
      this.#pending.set(request, { resolve, reject })
      socket.write(encodeMessage(message(request), ...payload))
    })
  }

  #send(message: ToRunner, payload: Uint8Array = noBytes): void {
    this.#socket?.write(encodeMessage(message, payload))
  }

  #settle(request: number): Pending | undefined {
    const pending = this.#pending.get(request)
    this.#pending.delete(request)
    return pending
  }
}

const noBytes = new Uint8Array(0)

const notResponding: Readiness = { ready: false, reason: 'the runner does not respond' }

function refusalOf({ code, details }: { code: RefusalCode; details: Refusal['details'] }): Refusal {
  return code in refusals ? new Refusal(code, details) : new Refusal('unavailable', { reason: 'the runner refused' })
}
