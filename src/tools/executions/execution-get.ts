import Type from 'typebox'
import { ExecutionOutput } from '../execute/schema.ts'
import { tool } from '../tool.ts'
import { executionArguments, toExecutionResult } from './execution.ts'

export const executionGet = tool({
  name: 'execution_get',
  title: 'Look at a run',
  toolset: 'executions',
  capabilities: ['executions.read'],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
  describe: () =>
    'Look at a run that goes on by itself, or has ended: what it printed, and how it ended. Answers at once. Of a run that was answered before its end, or had an idempotency_key, what it printed is kept for a day.',
  input: Type.Object(executionArguments, { additionalProperties: false }),
  narrow: (input) => input,
  output: ExecutionOutput,
  run: async (caller, { trace_id, cursor }, { core, signal, offers }) =>
    toExecutionResult(await core.look(caller, trace_id, { waitMs: 0, signal }), cursor, offers),
})
