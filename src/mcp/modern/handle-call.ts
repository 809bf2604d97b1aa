import { InputNeeded, type InputRequests, type InputResponses, logLevels } from '../../tools/request-context.ts'
import { disconnectReason, type Progress, type ToolContext } from '../../tools/tool.ts'
import type { McpContext, StreamReply } from '../handle.ts'
import { encodeNotification, type JsonReply, resultReply } from '../json-rpc/encode.ts'
import { own } from '../json-rpc/message.ts'
import { type CallRequest, callTool, getPrompt, readResource } from '../methods.ts'
import { ProgressEncoder } from '../progress-encoder.ts'
import { type ResponseChannel, respond } from '../respond.ts'
import { basicToolContext } from '../tool-context.ts'
import { toToolErrorResult } from '../tool-errors.ts'
import { CollectedInput } from './collected-input.ts'
import { modernError, type ResultEncoder } from './encode.ts'
import type { Envelope } from './envelope.ts'
import type { LiveTask } from './live-tasks.ts'
import { settleTask, tasksExtension, toWireTask } from './tasks.ts'

/**
 * Answers a request that can send notifications or ask for input. In this era a disconnect cancels the work. The call
 * can also become a task, which only `tasks/cancel` stops.
 * @throws Refusal `invalid_argument`, `state_invalid` for input that does not belong to the request.
 */
export async function handleCall(
  call: CallRequest,
  envelope: Envelope,
  readsEvents: boolean,
  encoder: ResultEncoder,
  context: McpContext,
): Promise<JsonReply | StreamReply> {
  const input = new CollectedInput(context.core, context.caller, call.method, call.params)
  const options = { readsEvents, streamAfterMs: context.streamAfterMs, abandoned: context.disconnected() }
  return respond(options, (channel) => new ModernCall(call, envelope, input, channel, encoder, context).answer())
}

/** One call, from its request to its response or its announcement as a task. */
class ModernCall {
  readonly #call: CallRequest
  readonly #envelope: Envelope
  readonly #input: CollectedInput
  readonly #channel: ResponseChannel
  readonly #encoder: ResultEncoder
  readonly #context: McpContext
  readonly #stop = new AbortController()
  readonly #announced = Promise.withResolvers<JsonReply>()
  #task: LiveTask | undefined

  constructor(
    call: CallRequest,
    envelope: Envelope,
    input: CollectedInput,
    channel: ResponseChannel,
    encoder: ResultEncoder,
    context: McpContext,
  ) {
    this.#call = call
    this.#envelope = envelope
    this.#input = input
    this.#channel = channel
    this.#encoder = encoder
    this.#context = context
  }

  /** Never rejects. */
  answer(): Promise<JsonReply> {
    const disconnected = this.#context.disconnected()
    const stop = () => {
      if (!this.#task) this.#stop.abort(disconnectReason)
    }
    if (disconnected.aborted) stop()
    else disconnected.addEventListener('abort', stop, { once: true })
    const work = this.#execute().finally(() => disconnected.removeEventListener('abort', stop))
    return Promise.race([this.#announced.promise, this.#reply(work)])
  }

  #execute(): Promise<object> {
    const { caller, offer, results, requireTool } = this.#context
    const { method, params } = this.#call
    switch (method) {
      case 'tools/call':
        requireTool(own(params, 'name'))
        return callTool(caller, params, offer, this.#toolContext(), results).catch(toToolErrorResult)
      case 'prompts/get':
        return getPrompt(caller, params, offer, this.#toolContext())
      case 'resources/read':
        return readResource(caller, params, offer, this.#toolContext())
    }
  }

  /** Returns the response of the call. The result of a task is stored instead, for `tasks/get`. */
  async #reply(work: Promise<object>): Promise<JsonReply> {
    const { id, method } = this.#call
    try {
      const result = await work
      if (this.#task) await settleTask(this.#task, { status: 'completed', outcome: result }, this.#context)
      const text = method === 'resources/read' ? this.#encoder.cacheable(result) : this.#encoder.complete(result)
      return resultReply(id, text)
    } catch (error) {
      if (this.#task) {
        // An error after a cancellation is not a failure: the task was settled when it was cancelled.
        if (this.#stop.signal.aborted) this.#context.tasks.close(this.#task.id)
        else await settleTask(this.#task, { status: 'failed', error }, this.#context)
        return this.#announced.promise
      }
      if (!(error instanceof InputNeeded)) return modernError(id, error, this.#context.log)
      const needed = { inputRequests: error.requests, requestState: this.#input.state() }
      return resultReply(id, this.#encoder.as('input_required', needed))
    }
  }

  #toolContext(): ToolContext {
    const { client, logLevel, progressToken } = this.#envelope
    const progressEncoder = new ProgressEncoder(progressToken)
    return {
      ...basicToolContext(this.#context, this.#stop.signal),
      client,
      // A disconnect cancels the call, so no run needs to survive it.
      detached: false,
      ask: (requests) => this.#ask(requests),
      log: async (level, data) => {
        const isWanted = logLevel !== undefined && logLevels.indexOf(level) >= logLevels.indexOf(logLevel)
        if (!isWanted || this.#task) return
        await this.#channel.send(encodeNotification('notifications/message', { level, data }))
      },
      ...(progressToken !== undefined && {
        started: () => this.#channel.startStream(),
        progress: async (progress: Progress) => {
          if (!this.#task) await this.#channel.send(progressEncoder.encode(progress))
        },
      }),
      ...(client.hasExtension(tasksExtension) && { toTask: (runId?: string) => this.#toTask(runId) }),
    }
  }

  async #ask(requests: InputRequests): Promise<InputResponses> {
    const collected = this.#input.responsesTo(requests)
    if ('responses' in collected) return collected.responses
    this.#envelope.client.require(collected.missing)
    if (!this.#task) throw new InputNeeded(collected.missing)
    return this.#task.ask(requests, this.#stop.signal)
  }

  async #toTask(runId: string | undefined): Promise<void> {
    if (this.#task) return
    const { core, caller, tasks } = this.#context
    const row = await core.tasks.create(caller, runId)
    if (this.#stop.signal.aborted) return void (await core.tasks.settle(row.id, 'cancelled', null))
    this.#task = tasks.open(row.id, this.#stop)
    this.#announced.resolve(resultReply(this.#call.id, this.#encoder.as('task', toWireTask(row))))
  }
}
