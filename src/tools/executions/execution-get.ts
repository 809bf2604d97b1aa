import Type from 'typebox'
import { ExecutionOutput } from '../execute/schema.ts'
import { tool } from '../tool.ts'
import { executionArguments, toExecutionResult } from './execution.ts'

export const executionGet = tool({
  name: 'execution_get',
  title: 'Get a run',
  toolset: 'executions',
  capabilities: ['executions.read'],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
  describe: () =>
    'Get the output and status of a run that is running in the background or has ended. Returns immediately. The output is kept for 24 hours if the run continued in the background or had an idempotency_key.',
  input: Type.Object(executionArguments, { additionalProperties: false }),
  narrow: (input) => input,
  output: ExecutionOutput,
  run: async (caller, { trace_id, cursor }, { core, signal, offers }) =>
    toExecutionResult(await core.waitForExecution(caller, trace_id, { waitMs: 0, signal }), cursor, offers),
})
