import { InputNeeded, type InputRequests, type InputResponses, logLevels } from '../../tools/request-context.ts'
import type { Progress, ToolContext } from '../../tools/tool.ts'
import type { McpContext, McpReply } from '../handle.ts'
import { notificationText, type Params, type RequestId } from '../json-rpc.ts'
import { callTool, getPrompt, readResource } from '../methods.ts'
import { ProgressSteps } from '../progress-steps.ts'
import { type Exchange, exchange } from '../respond.ts'
import { mendable } from '../tool-errors.ts'
import { errorReply, resultReply, type Stamp } from './codec.ts'
import type { Envelope } from './envelope.ts'
import { Input } from './input.ts'
import type { LiveTask } from './live-tasks.ts'
import { settleTask, taskOnTheWire, tasksExtension } from './tasks.ts'

type JsonReply = Extract<McpReply, { kind: 'json' }>

export interface Asked {
  id: RequestId
  method: 'tools/call' | 'prompts/get' | 'resources/read'
  params: Params
}

/**
 * Answers a request during which there may be something to tell or to ask. In this era a client that goes away has
 * cancelled: the work is stopped. It may also become a task, which from then on nothing but `tasks/cancel` stops.
 * @throws Refusal for answers that were not asked for.
 */
export async function converse(
  asked: Asked,
  envelope: Envelope,
  readsEvents: boolean,
  stamp: Stamp,
  context: McpContext,
): Promise<McpReply> {
  const input = new Input(context.core, context.caller, asked.method, asked.params)
  const terms = { readsEvents, quietMs: context.quietMs, abandoned: context.gone() }
  return exchange(terms, (channel) => new Conversation(asked, envelope, input, channel, stamp, context).answer())
}

class Conversation {
  readonly #asked: Asked
  readonly #envelope: Envelope
  readonly #input: Input
  readonly #channel: Exchange
  readonly #stamp: Stamp
  readonly #context: McpContext
  readonly #stop = new AbortController()
  readonly #announced = Promise.withResolvers<JsonReply>()
  #task: LiveTask | undefined

  constructor(asked: Asked, envelope: Envelope, input: Input, channel: Exchange, stamp: Stamp, context: McpContext) {
    this.#asked = asked
    this.#envelope = envelope
    this.#input = input
    this.#channel = channel
    this.#stamp = stamp
    this.#context = context
  }

  /** Never rejects. */
  answer(): Promise<JsonReply> {
    const gone = this.#context.gone()
    const stop = () => {
      if (!this.#task) this.#stop.abort('gone')
    }
    if (gone.aborted) stop()
    else gone.addEventListener('abort', stop, { once: true })
    const work = this.#work().finally(() => gone.removeEventListener('abort', stop))
    return Promise.race([this.#announced.promise, this.#reply(work)])
  }

  #work(): Promise<object> {
    const { caller, offer } = this.#context
    const { method, params } = this.#asked
    switch (method) {
      case 'tools/call':
        return callTool(caller, params, offer, this.#toolContext()).catch(mendable)
      case 'prompts/get':
        return getPrompt(caller, params, offer, this.#toolContext())
      case 'resources/read':
        return readResource(caller, params, offer, this.#toolContext())
    }
  }

  /** The answer of the work itself; of a task it goes to whoever asks for the task. */
  async #reply(work: Promise<object>): Promise<JsonReply> {
    const { id, method } = this.#asked
    try {
      const result = await work
      if (this.#task) await settleTask(this.#task, { status: 'completed', outcome: result }, this.#context)
      const text = method === 'resources/read' ? this.#stamp.cacheable(result) : this.#stamp.complete(result)
      return resultReply(id, text)
    } catch (error) {
      if (this.#task) {
        // What a cancelled work throws is no failure; the task is settled already.
        if (this.#stop.signal.aborted) this.#context.tasks.close(this.#task.id)
        else await settleTask(this.#task, { status: 'failed', error }, this.#context)
        return this.#announced.promise
      }
      if (!(error instanceof InputNeeded)) return errorReply(id, error, this.#context.log)
      const asking = { inputRequests: error.requests, requestState: this.#input.state() }
      return resultReply(id, this.#stamp.as('input_required', asking))
    }
  }

  #toolContext(): ToolContext {
    const { core, offer, baseUrl } = this.#context
    const { client, logLevel, progressToken } = this.#envelope
    const steps = new ProgressSteps(progressToken)
    return {
      core,
      baseUrl,
      offers: offer.has,
      client,
      signal: this.#stop.signal,
      // A front that dies takes nothing of its clients along that they could ask for again.
      detached: false,
      ask: (requests) => this.#ask(requests),
      log: async (level, data) => {
        const wanted = logLevel !== undefined && logLevels.indexOf(level) >= logLevels.indexOf(logLevel)
        if (wanted && !this.#task) await this.#channel.send(notificationText('notifications/message', { level, data }))
      },
      ...(progressToken !== undefined && {
        started: () => this.#channel.open(),
        progress: async (progress: Progress) => {
          if (!this.#task) await this.#channel.send(steps.next(progress))
        },
      }),
      ...(client.hasExtension(tasksExtension) && { toTask: (runId?: string) => this.#toTask(runId) }),
    }
  }

  async #ask(requests: InputRequests): Promise<InputResponses> {
    const found = this.#input.answersTo(requests)
    if ('answers' in found) return found.answers
    this.#envelope.client.require(found.missing)
    if (!this.#task) throw new InputNeeded(found.missing)
    return this.#task.ask(requests, this.#stop.signal)
  }

  async #toTask(runId: string | undefined): Promise<void> {
    if (this.#task) return
    const { core, caller, tasks } = this.#context
    const row = await core.tasks.create(caller, runId)
    if (this.#stop.signal.aborted) return void (await core.tasks.settle(row.id, 'cancelled', null))
    this.#task = tasks.open(row.id, this.#stop)
    this.#announced.resolve(resultReply(this.#asked.id, this.#stamp.as('task', taskOnTheWire(row))))
  }
}
