import { Refusal } from '../../base/errors.ts'
import type { Caller } from '../../core/caller.ts'
import type { ExecuteEvent } from '../../core/runs/execute.ts'
import { Fold } from '../../core/runs/fold.ts'
import { toExecutionResult } from '../executions/execution.ts'
import type { ToolContext, ToolResult } from '../tool.ts'
import { ProgressReporter } from './progress-reporter.ts'
import { type Asked, toToolResult } from './result.ts'

/** A client that can follow tasks waits so long for a plain answer; most runs have ended by then. */
const taskAfterMs = 2_000

/** Follows one run for the call that asked for it, and lets it go on where the call is answered before it ends. */
export class RunFollower {
  readonly #events: AsyncGenerator<ExecuteEvent, void, undefined>
  readonly #caller: Caller
  readonly #context: ToolContext
  readonly #fold = new Fold()
  readonly #telling: ProgressReporter | undefined
  readonly #asked: Asked
  #runId = ''
  #createdAt = ''

  constructor(
    events: AsyncGenerator<ExecuteEvent, void, undefined>,
    caller: Caller,
    context: ToolContext,
    asked: Asked,
  ) {
    this.#asked = asked
    this.#events = events
    this.#caller = caller
    this.#context = context
    this.#telling = context.progress && new ProgressReporter(context.progress)
  }

  /** @param detachAfterMs how long the call waits for the end of the run; `null` waits for it in any case. */
  async follow(detachAfterMs: number | null): Promise<ToolResult> {
    const result = await this.#toTheEnd(detachAfterMs)
    await this.#telling?.settled()
    return result
  }

  async #toTheEnd(detachAfterMs: number | null): Promise<ToolResult> {
    const late = Promise.withResolvers<'late'>()
    const timers: NodeJS.Timeout[] = []
    let becoming: Promise<void> | undefined
    const { toTask, started, log } = this.#context
    try {
      for (let next = this.#events.next(); ; next = this.#events.next()) {
        const told = await Promise.race([next, late.promise])
        if (told === 'late') return await this.#letGo()
        if (told.done) break
        const event = told.value
        this.#add(event)
        if (event.kind !== 'accepted') continue
        started?.()
        await log('debug', { trace_id: event.runId })
        if (detachAfterMs !== null) timers.push(setTimeout(() => late.resolve('late'), detachAfterMs))
        if (toTask) {
          const become = () => {
            becoming = this.#outlive().then(() => toTask(event.runId))
            // Told below, where the outcome is: until then the run goes on in any case.
            becoming.catch(() => {})
          }
          timers.push(setTimeout(become, taskAfterMs))
        }
      }
    } finally {
      for (const timer of timers) clearTimeout(timer)
    }
    await becoming
    return toToolResult(this.#fold.finish(), this.#asked)
  }

  #add(event: ExecuteEvent): void {
    this.#fold.add(event)
    this.#telling?.add(event)
    if (event.kind === 'accepted') {
      this.#runId = event.runId
      this.#createdAt = event.createdAt
    }
  }

  /** Before anybody is told that it goes on: until then it ends with whoever waits for it. */
  async #outlive(): Promise<void> {
    try {
      await this.#context.core.outlive(this.#caller, this.#runId)
    } catch (error) {
      // It has ended meanwhile, or its runner is gone; either is told as its ending.
      if (!(error instanceof Refusal)) throw error
    }
  }

  /** Answers with what there is; the run is read to its end without anybody waiting. */
  async #letGo(): Promise<ToolResult> {
    await this.#outlive()
    this.#context.core.leave(this.#events)
    const so = { runId: this.#runId, createdAt: this.#createdAt, ending: null, result: null, output: this.#fold.keep() }
    return toExecutionResult(so, undefined, this.#context.offers)
  }
}
