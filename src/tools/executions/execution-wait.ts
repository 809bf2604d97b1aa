import Type from 'typebox'
import { ExecutionOutput } from '../execute/schema.ts'
import { tool } from '../tool.ts'
import { executionArguments, toExecutionResult } from './execution.ts'

/** Common clients give up after a minute; an answer must be there before. */
const waitLimitSeconds = 50
const waitDefaultSeconds = 25

export const executionWait = tool({
  name: 'execution_wait',
  title: 'Wait for a run',
  toolset: 'executions',
  capabilities: ['executions.read'],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
  describe: () =>
    'Wait until a run that goes on by itself has ended, or until the time is up, and be told what it printed meanwhile. Call it again with the new cursor while the run is still going.',
  input: Type.Object(
    {
      ...executionArguments,
      timeout: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: waitLimitSeconds,
          default: waitDefaultSeconds,
          description: 'Longest to wait, in seconds. The run itself is not limited by it.',
        }),
      ),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  output: ExecutionOutput,
  run: async (caller, { trace_id, cursor, timeout = waitDefaultSeconds }, { core, signal, offers }) =>
    toExecutionResult(await core.look(caller, trace_id, { waitMs: timeout * 1000, signal }), cursor, offers),
})
