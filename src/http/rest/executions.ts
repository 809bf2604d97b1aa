import Type from 'typebox'
import { toPageRequest } from '../../core/paging.ts'
import { keyOperation, type Operation, ok } from '../operation.ts'
import { pageParameters } from '../query.ts'
import { listOf, named } from '../schemas.ts'

import { isBaponiClient, toBaponiExecution } from './baponi-client.ts'
import { executionExample, executionsExample } from './examples.ts'
import { Execution, executionGroup as group, ListedExecution, toListed, toRecorded } from './execution.ts'
import { executionImage, executionOutput } from './execution-output.ts'

export const Cancelling = named(
  'CancelledExecution',
  Type.Object({ trace_id: Type.String(), status: Type.Literal('cancelling') }),
)

const metadataPrefix = 'metadata.'

export const executionOperations: readonly Operation[] = [
  keyOperation({
    id: 'listExecutions',
    method: 'GET',
    path: '/v1/executions',
    capability: 'executions.read',
    group,
    summary: 'List runs, newest first',
    query: {
      thread_id: 'Only runs of this thread.',
      status: 'running, success, failed, timeout, oom or cancelled.',
      language: 'python, node, typescript or bash.',
      created_after: 'A date or time, ISO 8601.',
      created_before: 'A date or time, ISO 8601.',
      'metadata.KEY': 'Only runs whose metadata has this value under KEY.',
      ...pageParameters,
    },
    example: executionsExample,
    answers: { 200: listOf(ListedExecution) },
    refusals: ['invalid_argument'],
    handle: async ({ core, caller, query }) => {
      const { items, nextCursor } = await core.executions(caller, {
        ...toPageRequest(query),
        threadId: query.thread_id,
        status: query.status,
        language: query.language,
        createdAfter: query.created_after,
        createdBefore: query.created_before,
        metadata: Object.entries(query).flatMap(([name, value]) =>
          name.startsWith(metadataPrefix) ? [[name.slice(metadataPrefix.length), value] as const] : [],
        ),
      })
      return ok({ data: items.map(toListed), next_cursor: nextCursor })
    },
  }),
  keyOperation({
    id: 'getExecution',
    method: 'GET',
    path: '/v1/executions/{id}',
    capability: 'executions.read',
    group,
    summary: 'Get a run, while it is running or after it has ended',
    example: executionExample,
    answers: { 200: Execution },
    refusals: ['invalid_argument', 'run_unknown', 'unavailable'],
    handle: async ({ core, caller, request, reply, params: { id } }) => {
      const execution = toRecorded(await core.execution(caller, id))
      reply.header('x-trace-id', id)
      return ok(isBaponiClient(request.headers) ? toBaponiExecution(execution) : execution)
    },
  }),
  executionOutput,
  executionImage,
  keyOperation({
    id: 'cancelExecution',
    method: 'POST',
    path: '/v1/executions/{id}/cancel',
    capability: 'executions.cancel',
    group,
    summary: 'Cancel a run; its result is delivered where the run was requested',
    answers: { 200: Cancelling },
    refusals: ['run_unknown', 'run_finished'],
    handle: async ({ core, caller, reply, params: { id } }) => {
      await core.cancel(caller, id)
      reply.header('x-trace-id', id)
      return ok({ trace_id: id, status: 'cancelling' })
    },
  }),
]
