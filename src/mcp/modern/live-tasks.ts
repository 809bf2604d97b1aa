import type { InputRequests, InputResponses } from '../../tools/request-context.ts'
import type { ChangeFeed } from '../change-feed.ts'
import { checkInputResponse } from '../input-response.ts'
import { own, type Params } from '../json-rpc/message.ts'

interface PendingInput {
  request: InputRequests[string]
  resolve: (response: Params) => void
}

/** A task whose work is in progress in this process. */
export class LiveTask {
  readonly id: string
  readonly #stop: AbortController
  readonly #changes: ChangeFeed
  readonly #pending = new Map<string, PendingInput>()
  #rounds = 0

  constructor(id: string, stop: AbortController, changes: ChangeFeed) {
    this.id = id
    this.#stop = stop
    this.#changes = changes
  }

  /** The pending requests to the client, by the name of the response. A task never uses a name twice. */
  get pendingInput(): InputRequests {
    return Object.fromEntries([...this.#pending].map(([name, { request }]) => [name, request]))
  }

  /** Waits for the responses of the client. Rejects when the task is cancelled. */
  async ask(requests: InputRequests, signal: AbortSignal): Promise<InputResponses> {
    const round = ++this.#rounds
    const cancelled = Promise.withResolvers<never>()
    const cancel = () => cancelled.reject(new Error('the task was cancelled'))
    if (signal.aborted) cancel()
    signal.addEventListener('abort', cancel, { once: true })
    const responses = Object.entries(requests).map(async ([name, request]) => {
      const { promise, resolve } = Promise.withResolvers<Params>()
      this.#pending.set(round === 1 ? name : `${name}.${round}`, { request, resolve })
      return [name, await promise] as const
    })
    this.#changes.publish({ kind: 'task', taskId: this.id })
    try {
      return Object.fromEntries(await Promise.race([Promise.all(responses), cancelled.promise]))
    } finally {
      signal.removeEventListener('abort', cancel)
      this.#pending.clear()
    }
  }

  /** Receives responses to pending requests and ignores others. @throws Refusal `input_invalid`. */
  receive(responses: Params): void {
    for (const [name, { request, resolve }] of this.#pending) {
      const response = own(responses, name)
      if (response === undefined) continue
      const checked = checkInputResponse(name, request, response)
      this.#pending.delete(name)
      resolve(checked)
    }
    this.#changes.publish({ kind: 'task', taskId: this.id })
  }

  cancel(): void {
    this.#stop.abort('cancelled')
  }
}

/** The tasks in progress in this process. */
export class LiveTasks {
  readonly #changes: ChangeFeed
  readonly #tasks = new Map<string, LiveTask>()

  constructor(changes: ChangeFeed) {
    this.#changes = changes
  }

  open(id: string, stop: AbortController): LiveTask {
    const task = new LiveTask(id, stop, this.#changes)
    this.#tasks.set(id, task)
    return task
  }

  get(id: string): LiveTask | undefined {
    return this.#tasks.get(id)
  }

  /** Removes a task whose work has ended. */
  close(id: string): void {
    this.#tasks.delete(id)
    this.#changes.publish({ kind: 'task', taskId: id })
  }
}
