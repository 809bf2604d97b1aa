import type { InputRequests, InputResponses } from '../../tools/request-context.ts'
import type { Changes } from '../changes.ts'
import { checkAnswer } from '../client-answers.ts'
import { own, type Params } from '../json-rpc.ts'

interface Question {
  request: InputRequests[string]
  answered: (answer: Params) => void
}

/** A task whose work goes on in this process. */
export class LiveTask {
  readonly id: string
  readonly #stop: AbortController
  readonly #changes: Changes
  readonly #open = new Map<string, Question>()
  #rounds = 0

  constructor(id: string, stop: AbortController, changes: Changes) {
    this.id = id
    this.#stop = stop
    this.#changes = changes
  }

  /** What is asked of the client now, by the name under which it answers; a name is never used twice in one task. */
  get questions(): InputRequests {
    return Object.fromEntries([...this.#open].map(([name, { request }]) => [name, request]))
  }

  /** Waits for the answers. Rejects when the task is cancelled. */
  async ask(requests: InputRequests, signal: AbortSignal): Promise<InputResponses> {
    const round = ++this.#rounds
    const cancelled = Promise.withResolvers<never>()
    const cancel = () => cancelled.reject(new Error('the task was cancelled'))
    if (signal.aborted) cancel()
    signal.addEventListener('abort', cancel, { once: true })
    const answers = Object.entries(requests).map(async ([name, request]) => {
      const { promise, resolve } = Promise.withResolvers<Params>()
      this.#open.set(round === 1 ? name : `${name}.${round}`, { request, answered: resolve })
      return [name, await promise] as const
    })
    this.#changes.tell({ kind: 'task', taskId: this.id })
    try {
      return Object.fromEntries(await Promise.race([Promise.all(answers), cancelled.promise]))
    } finally {
      signal.removeEventListener('abort', cancel)
      this.#open.clear()
    }
  }

  /** Takes the answers to what is asked now; others are nobody's. @throws Refusal `input_invalid`. */
  answer(responses: Params): void {
    for (const [name, { request, answered }] of this.#open) {
      const response = own(responses, name)
      if (response === undefined) continue
      const answer = checkAnswer(name, request, response)
      this.#open.delete(name)
      answered(answer)
    }
    this.#changes.tell({ kind: 'task', taskId: this.id })
  }

  cancel(): void {
    this.#stop.abort('cancelled')
  }
}

/** The tasks of this process that go on. */
export class LiveTasks {
  readonly #changes: Changes
  readonly #tasks = new Map<string, LiveTask>()

  constructor(changes: Changes) {
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

  /** The work of a task is over. */
  close(id: string): void {
    this.#tasks.delete(id)
    this.#changes.tell({ kind: 'task', taskId: id })
  }
}
