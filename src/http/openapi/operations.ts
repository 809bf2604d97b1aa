import type { RefusalCode } from '../../base/errors.ts'
import { Accepted, ExecuteBody } from '../rest/execute.ts'
import { Execution } from '../rest/execution.ts'
import { Cancelling, ExecutionList, ExecutionOutputSoFar } from '../rest/executions.ts'
import { DeleteBody, DownloadBody, ListBody, UploadBody } from '../rest/files.ts'
import { ForkBody, InspectedThread, ThreadList } from '../rest/threads.ts'
import { CallerVolumeList } from '../rest/volumes.ts'
import { adminOperations, paged } from './admin-operations.ts'
import * as answers from './answers.ts'
import type { Operation } from './operation.ts'

/** What is refused where a run is asked for. */
const runRefusals: readonly RefusalCode[] = [
  'invalid_argument',
  'code_empty',
  'code_too_large',
  'language_unavailable',
  'timeout_too_long',
  'thread_busy',
  'subject_conflict',
  'idempotency_conflict',
  'limit_reached',
  'queue_full',
  'unavailable',
]

const fileRefusals: readonly RefusalCode[] = [
  'invalid_argument',
  'path_invalid',
  'thread_unknown',
  'path_not_found',
  'not_a_file',
  'threads_unavailable',
  'volumes_unavailable',
  'files_busy',
  'unavailable',
]

const rest: Readonly<Record<string, Operation>> = {
  'POST /v1/sandbox/execute': {
    id: 'execute',
    summary:
      'Run code. With Accept: application/x-ndjson the answer comes line by line as it happens; with Prefer: respond-async it is posted to webhook_url. A run that started is a 200, however it ended',
    by: 'key',
    group: 'Execute',
    query: { encoding: 'Of output in lines: text, or base64 for the bytes as they were printed.' },
    body: ExecuteBody,
    answers: { 200: answers.ExecutionAnswer, 202: Accepted },
    refusals: runRefusals,
  },
  'GET /v1/executions': {
    id: 'listExecutions',
    summary: 'List runs, the newest first',
    by: 'key',
    group: 'Executions',
    query: {
      thread_id: 'Of this thread alone.',
      status: 'running, success, failed, timeout, oom or cancelled.',
      language: 'python, node or bash.',
      created_after: 'A day or time, ISO 8601.',
      created_before: 'A day or time, ISO 8601.',
      'metadata.KEY': 'Whose metadata has this value under KEY.',
      ...paged,
    },
    answers: { 200: ExecutionList },
    refusals: ['invalid_argument'],
  },
  'GET /v1/executions/{id}': {
    id: 'getExecution',
    summary: 'Look at a run, while it goes on or after',
    by: 'key',
    group: 'Executions',
    answers: { 200: Execution },
    refusals: ['invalid_argument', 'run_unknown', 'unavailable'],
  },
  'GET /v1/executions/{id}/output': {
    id: 'getExecutionOutput',
    summary:
      'Read what a run prints. With Accept: application/x-ndjson it is replayed line by line and followed to its end',
    by: 'key',
    group: 'Executions',
    query: {
      after: 'Replay what came after this seq.',
      encoding: 'Of output in lines: text, or base64 for the bytes as they were printed.',
    },
    answers: { 200: ExecutionOutputSoFar },
    refusals: ['invalid_argument', 'run_unknown', 'unavailable'],
  },
  'POST /v1/executions/{id}/cancel': {
    id: 'cancelExecution',
    summary: 'End a run; its answer arrives where it was asked for',
    by: 'key',
    group: 'Executions',
    answers: { 200: Cancelling },
    refusals: ['run_unknown', 'run_finished'],
  },
  'POST /v1/files/list': {
    id: 'listFiles',
    summary: 'List a part of a directory',
    by: 'key',
    group: 'Files',
    body: ListBody,
    answers: { 200: answers.FileList },
    refusals: [...fileRefusals, 'not_a_directory'],
  },
  'POST /v1/files/upload': {
    id: 'uploadFile',
    summary: 'Get a link that uploads a file',
    by: 'key',
    group: 'Files',
    body: UploadBody,
    answers: { 200: answers.SignedLink },
    refusals: fileRefusals,
  },
  'POST /v1/files/download': {
    id: 'downloadFile',
    summary: 'Get a link that downloads a file',
    by: 'key',
    group: 'Files',
    body: DownloadBody,
    answers: { 200: answers.SignedLink },
    refusals: fileRefusals,
  },
  'POST /v1/files/delete': {
    id: 'deleteFiles',
    summary: 'Delete files, and directories with what they hold where that is asked for',
    by: 'key',
    group: 'Files',
    body: DeleteBody,
    answers: { 200: answers.DeletedFiles },
    refusals: [...fileRefusals, 'directory_not_empty', 'thread_busy'],
  },
  'GET /v1/blobs/{token}': {
    id: 'getBlob',
    summary: 'Download a file, or a part of it with Range, through a signed link',
    by: 'nobody',
    group: 'Files',
    answers: {
      200: { mediaType: 'application/octet-stream' },
      206: { mediaType: 'application/octet-stream' },
      304: null,
    },
    refusals: ['link_invalid', ...fileRefusals, 'range_unsatisfiable'],
  },
  'HEAD /v1/blobs/{token}': {
    id: 'headBlob',
    summary: 'Tell the size of a file, and nothing of what it holds, through a signed link',
    by: 'nobody',
    group: 'Files',
    answers: { 200: null, 206: null, 304: null },
    refusals: ['link_invalid'],
  },
  'PUT /v1/blobs/{token}': {
    id: 'putBlob',
    summary: 'Upload a file, whole or not at all, through a signed link',
    by: 'nobody',
    group: 'Files',
    body: { mediaType: 'application/octet-stream' },
    answers: { 200: answers.UploadedFile },
    refusals: [
      'link_invalid',
      'link_used',
      'length_required',
      'upload_too_large',
      'upload_broken',
      'thread_busy',
      'storage_full',
      ...fileRefusals,
    ],
  },
}

const threadRefusals: readonly RefusalCode[] = [
  'invalid_argument',
  'threads_unavailable',
  'thread_unknown',
  'unavailable',
]

const storage: Readonly<Record<string, Operation>> = {
  'GET /v1/threads': {
    id: 'listThreads',
    summary: 'List the threads of the organisation, by name',
    by: 'key',
    group: 'Threads',
    query: paged,
    answers: { 200: ThreadList },
    refusals: threadRefusals,
  },
  'GET /v1/threads/{id}': {
    id: 'getThread',
    summary: 'Look at a thread: its size, its last use, whether a run has it',
    by: 'key',
    group: 'Threads',
    answers: { 200: InspectedThread },
    refusals: threadRefusals,
  },
  'DELETE /v1/threads/{id}': {
    id: 'deleteThread',
    summary: 'Delete a thread with all that it holds',
    by: 'key',
    group: 'Threads',
    answers: { 204: null },
    refusals: [...threadRefusals, 'thread_busy'],
  },
  'POST /v1/threads/{id}/fork': {
    id: 'forkThread',
    summary: 'Copy a thread, whole or not at all',
    by: 'key',
    group: 'Threads',
    body: ForkBody,
    answers: { 201: InspectedThread },
    refusals: [...threadRefusals, 'thread_busy', 'thread_exists'],
  },
  'GET /v1/volumes': {
    id: 'listVolumes',
    summary: 'List the volumes that runs of this key have',
    by: 'key',
    group: 'Volumes',
    query: paged,
    answers: { 200: CallerVolumeList },
    refusals: ['invalid_argument', 'unavailable'],
  },
}

const server: Readonly<Record<string, Operation>> = {
  'GET /healthz': {
    id: 'alive',
    summary: 'Tell whether the process answers',
    by: 'nobody',
    group: 'Server',
    answers: { 200: answers.Health },
    refusals: [],
  },
  'GET /readyz': {
    id: 'ready',
    summary: 'Tell whether a run could start; 503 and why where not',
    by: 'nobody',
    group: 'Server',
    answers: { 200: answers.Health },
    refusals: ['unavailable'],
  },
  'GET /metrics': {
    id: 'metrics',
    summary: 'Counts and durations in the text form of Prometheus',
    by: 'admin token',
    group: 'Server',
    answers: { 200: { mediaType: 'text/plain' } },
    refusals: [],
  },
  'GET /openapi.json': {
    id: 'openapi',
    summary: 'This document',
    by: 'nobody',
    group: 'Server',
    answers: { 200: { mediaType: 'application/json' }, 304: null },
    refusals: [],
  },
  'POST /mcp': {
    id: 'mcp',
    summary: 'A message of MCP; see docs/mcp.md',
    by: 'key',
    group: 'MCP',
    query: {
      toolsets: 'Groups of tools to show, with commas.',
      session: 'true asks for a session, which only what asks the client back needs.',
    },
    body: { mediaType: 'application/json' },
    answers: { 200: { mediaType: 'application/json' }, 202: null },
    refusals: ['parse_error', 'invalid_request', 'thread_busy'],
  },
  'GET /mcp': {
    id: 'mcpEvents',
    summary: 'A stream of messages from the server, for clients of MCP before 2026-07-28',
    by: 'key',
    group: 'MCP',
    answers: { 200: { mediaType: 'text/event-stream' } },
    refusals: ['method_not_allowed'],
  },
  'DELETE /mcp': {
    id: 'endMcpSession',
    summary: 'End a session of MCP',
    by: 'key',
    group: 'MCP',
    answers: { 204: null },
    refusals: ['method_not_allowed'],
  },
}

/** Every operation there is, by `METHOD /path`. */
export const operations: Readonly<Record<string, Operation>> = { ...rest, ...storage, ...server, ...adminOperations }
