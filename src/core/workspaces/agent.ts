import { Refusal } from '../../base/errors.ts'
import { parseForeignJson } from '../../base/json.ts'
import { decodeFrames, encodeFrame } from './agent-frames.ts'
import { agentProgram } from './agent-program.ts'

/** The two-way stream of bytes to an agent, on descriptor 3 of its process. */
export interface AgentLink {
  /** Ends when the process has ended. */
  readonly received: AsyncIterable<Uint8Array>
  write(bytes: Uint8Array): Promise<void>
  /** Ends the agent and the processes that it has started. Can be called twice. */
  close(): Promise<void>
}

/** One operation of the agent; `guest/workspace/serve.py` lists all of them. */
export interface AgentRequest {
  op: string
  args: Readonly<Record<string, unknown>>
  /** Longest time for the reply. */
  timeoutMs: number
}

export type AgentReply =
  | { kind: 'ok'; value: unknown }
  /** What the caller can fix, in the words of the agent. */
  | { kind: 'refused'; text: string }

/** Requests that one agent works on at once. */
const pendingMax = 64
const startMs = 20_000
const refusalTextMax = 16_384

interface Pending {
  resolve(reply: AgentReply): void
  reject(error: Error): void
}

/** The client of one workspace agent. Replies are matched by number; all of them are untrusted. */
export class WorkspaceAgent {
  readonly #link: AgentLink
  readonly #pending = new Map<number, Pending>()
  readonly #ended = Promise.withResolvers<void>()
  #lastId = 0
  /** A frame is written as a whole before the next one. */
  #written: Promise<void> = Promise.resolve()
  #failure: Error | undefined

  private constructor(link: AgentLink) {
    this.#link = link
  }

  /** Sends the program and waits until it serves. @throws Refusal workspace_failed. */
  static async start(link: AgentLink): Promise<WorkspaceAgent> {
    const agent = new WorkspaceAgent(link)
    const ready = agent.#wait(0, startMs, new AbortController().signal)
    void agent.#read()
    try {
      const [reply] = await Promise.all([ready, agent.#write(await agentProgram())])
      if (reply.kind === 'refused') throw new Refusal('workspace_failed', { reason: reply.text.slice(0, 500) })
      return agent
    } catch (error) {
      await agent.close()
      throw error
    }
  }

  /** Whether further calls can succeed. */
  get isOpen(): boolean {
    return this.#failure === undefined
  }

  /** Number of requests without a reply. */
  get pending(): number {
    return this.#pending.size
  }

  /** Resolves when the agent has ended. */
  get ended(): Promise<void> {
    return this.#ended.promise
  }

  /**
   * Calls an operation.
   * @param reader whose reads and shell state apply.
   * @throws Refusal workspace_busy, workspace_failed.
   */
  async call(reader: string, { op, args, timeoutMs }: AgentRequest, signal: AbortSignal): Promise<AgentReply> {
    if (this.#failure) throw this.#failure
    if (this.#pending.size >= pendingMax) throw new Refusal('workspace_busy', { limit: pendingMax })
    this.#lastId += 1
    const id = this.#lastId
    const reply = this.#wait(id, timeoutMs, signal)
    const [answer] = await Promise.all([reply, this.#write(encodeFrame(JSON.stringify({ id, op, reader, args })))])
    return answer
  }

  async close(): Promise<void> {
    this.#fail(failed('it was closed'))
    await this.#link.close()
  }

  async #wait(id: number, timeoutMs: number, signal: AbortSignal): Promise<AgentReply> {
    const { promise, resolve, reject } = Promise.withResolvers<AgentReply>()
    const timer = setTimeout(() => reject(failed(`it did not reply within ${timeoutMs / 1000} seconds`)), timeoutMs)
    const abort = () => reject(new Refusal('unavailable', { reason: 'the call was cancelled' }))
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort, { once: true })
    this.#pending.set(id, { resolve, reject })
    try {
      return await promise
    } catch (error) {
      // The agent kills what the call has started.
      if (id > 0 && !this.#failure) void this.#write(encodeFrame(JSON.stringify({ cancel: id }))).catch(() => {})
      throw error
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', abort)
      this.#pending.delete(id)
    }
  }

  #write(frame: Buffer): Promise<void> {
    const written = this.#written.then(() => this.#link.write(frame))
    this.#written = written.catch(() => {})
    return written
  }

  async #read(): Promise<void> {
    try {
      for await (const frame of decodeFrames(this.#link.received)) this.#receive(frame)
      this.#fail(failed('its process has ended'))
    } catch (error) {
      this.#fail(error instanceof Refusal ? error : failed('its channel was lost'))
      await this.#link.close().catch(() => {})
    }
  }

  #receive(frame: string): void {
    let reply: unknown
    try {
      reply = parseForeignJson(frame)
    } catch {
      throw failed('it sent a reply that is not JSON, or of too many values')
    }
    if (typeof reply !== 'object' || reply === null) throw failed('it sent a reply that is not an object')
    const { id, ok, refused, fault } = reply as Record<string, unknown>
    const pending = typeof id === 'number' ? this.#pending.get(id) : undefined
    // The call was cancelled meanwhile.
    if (!pending) return
    if (typeof refused === 'string') pending.resolve({ kind: 'refused', text: refused.slice(0, refusalTextMax) })
    else if (fault !== undefined)
      pending.reject(new Error(`the workspace agent failed: ${String(fault).slice(0, 4000)}`))
    else pending.resolve({ kind: 'ok', value: ok })
  }

  #fail(error: Error): void {
    if (this.#failure) return
    this.#failure = error
    for (const { reject } of this.#pending.values()) reject(error)
    this.#ended.resolve()
  }
}

const failed = (reason: string): Refusal => new Refusal('workspace_failed', { reason })
