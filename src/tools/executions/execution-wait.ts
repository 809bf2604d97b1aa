import Type from 'typebox'
import { ExecutionOutput } from '../execute/schema.ts'
import { tool } from '../tool.ts'
import { executionArguments, toExecutionResult } from './execution.ts'

/** Common clients time out after a minute; the result must arrive before. */
const waitLimitSeconds = 50
const waitDefaultSeconds = 25

export const executionWait = tool({
  name: 'execution_wait',
  title: 'Wait for a run',
  toolset: 'executions',
  capabilities: ['executions.read'],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
  describe: () =>
    'Wait until a run in the background has ended or the timeout has passed, and return its new output. While the run is still running, call again with the new cursor.',
  input: Type.Object(
    {
      ...executionArguments,
      timeout: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: waitLimitSeconds,
          default: waitDefaultSeconds,
          description: 'Longest time to wait, in seconds. It does not limit the run itself.',
        }),
      ),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  output: ExecutionOutput,
  run: async (caller, { trace_id, cursor, timeout = waitDefaultSeconds }, { core, signal, offers }) =>
    toExecutionResult(
      await core.waitForExecution(caller, trace_id, { waitMs: timeout * 1000, signal }),
      cursor,
      offers,
      caller.profile.calls.mcpOutputCharacters,
    ),
})
