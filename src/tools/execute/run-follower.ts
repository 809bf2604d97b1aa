import { Refusal } from '../../base/errors.ts'
import type { Caller } from '../../core/caller.ts'
import type { AcceptedEvent, ExecuteEvent } from '../../core/runs/execute-event.ts'
import { toExecutionResult } from '../executions/execution.ts'
import type { ToolContext, ToolResult } from '../tool.ts'
import { ProgressReporter } from './progress-reporter.ts'
import { type Asked, type OutputLimit, outputLimit, toShortResult } from './result.ts'

/** Most runs end within this time, so that a client that supports tasks gets a plain answer. */
const taskAfterMs = 2_000

/** Says in the fields for programs that the output can be fetched later, and with it the images. */
const markKept = (result: ToolResult, kept: boolean): ToolResult =>
  kept ? { ...result, structuredContent: { ...result.structuredContent, output_kept: true } } : result

/** Follows one run on behalf of a call, and detaches the run when the call is answered before the run ends. */
export class RunFollower {
  readonly #events: AsyncGenerator<ExecuteEvent, void, undefined>
  readonly #caller: Caller
  readonly #context: ToolContext
  readonly #asked: Asked
  readonly #limit: OutputLimit
  readonly #progress: ProgressReporter | undefined

  constructor(
    events: AsyncGenerator<ExecuteEvent, void, undefined>,
    caller: Caller,
    context: ToolContext,
    asked: Asked,
  ) {
    this.#events = events
    this.#caller = caller
    this.#context = context
    this.#asked = asked
    this.#limit = outputLimit(caller, context.offers)
    this.#progress = context.progress && new ProgressReporter(context.progress)
  }

  /**
   * Returns the result of the run, or its partial output when it is detached first.
   * @param detachAfterMs how long the call waits for the run to end; `null` waits until it ends.
   */
  async follow(detachAfterMs: number | null): Promise<ToolResult> {
    const result = await this.#untilAnswered(detachAfterMs)
    await this.#progress?.settled()
    return result
  }

  async #untilAnswered(detachAfterMs: number | null): Promise<ToolResult> {
    const late = Promise.withResolvers<'late'>()
    const timers: NodeJS.Timeout[] = []
    let accepted: AcceptedEvent | undefined
    let becomingTask: Promise<void> | undefined
    const { toTask, started, log } = this.#context
    try {
      for (let next = this.#events.next(); ; next = this.#events.next()) {
        const given = await Promise.race([next, late.promise])
        if (given === 'late') return await this.#detached(accepted!)
        if (given.done) throw new Error('the events of a run stopped before its ending')
        const event = given.value
        this.#progress?.add(event)
        if (event.kind === 'accepted') {
          accepted = event
          const { runId } = event
          started?.()
          await log('debug', { trace_id: runId })
          if (detachAfterMs !== null) timers.push(setTimeout(() => late.resolve('late'), detachAfterMs))
          if (!toTask) continue
          const becomeTask = () => {
            becomingTask = this.#detach(runId).then(() => toTask(runId))
            // Reported below, with the outcome: until then the run continues in any case.
            becomingTask.catch(() => {})
          }
          timers.push(setTimeout(becomeTask, taskAfterMs))
        } else if (event.kind === 'ended' || event.kind === 'recorded') {
          await becomingTask
          const { runId, kept } = accepted!
          const isKept = event.kind === 'ended' ? event.isKept : kept
          return markKept(toShortResult(runId, event.result, event.output, this.#asked, this.#limit), isKept)
        }
      }
    } finally {
      for (const timer of timers) clearTimeout(timer)
    }
  }

  /** Lets the run outlive this process; until then a run ends with the call that follows it. */
  async #detach(runId: string): Promise<void> {
    try {
      await this.#context.core.detach(this.#caller, runId)
    } catch (error) {
      // The run has ended meanwhile, or its runner is gone; the ending says which.
      if (!(error instanceof Refusal)) throw error
    }
  }

  /** Returns the output so far; the run is followed to its end in the background. */
  async #detached({ runId, createdAt, outputSoFar }: AcceptedEvent): Promise<ToolResult> {
    await this.#detach(runId)
    this.#context.core.drainInBackground(this.#events)
    const execution = { runId, createdAt, ending: null, result: null, output: outputSoFar() }
    return toExecutionResult(execution, undefined, this.#context.offers, this.#limit.maxCharacters)
  }
}
