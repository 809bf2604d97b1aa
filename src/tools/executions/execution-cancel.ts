import Type from 'typebox'
import { ExecutionOutput } from '../execute/schema.ts'
import { tool } from '../tool.ts'
import { executionArguments, toExecutionResult } from './execution.ts'

/** The kernel kills at once; the ending is recorded soon after. */
const endingMs = 2_000

export const executionCancel = tool({
  name: 'execution_cancel',
  title: 'Stop a run',
  toolset: 'executions',
  capabilities: ['executions.cancel', 'executions.read'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true },
  describe: () => 'Stop a run that is running in the background. Returns its output so far.',
  input: Type.Object(executionArguments, { additionalProperties: false }),
  narrow: (input) => input,
  output: ExecutionOutput,
  run: async (caller, { trace_id, cursor }, { core, signal, offers }) => {
    await core.cancel(caller, trace_id)
    const stopped = toExecutionResult(
      await core.waitForExecution(caller, trace_id, { waitMs: endingMs, signal }),
      cursor,
      offers,
      caller.profile.calls.mcpOutputCharacters,
    )
    // The caller requested the cancellation, so it is not an error.
    return { ...stopped, isError: false }
  },
})
