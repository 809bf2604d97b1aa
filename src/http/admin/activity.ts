import type { FastifyReply } from 'fastify'
import Type from 'typebox'
import {
  cancelRun,
  followRunOf,
  listRuns,
  listSandboxes,
  listThreadFiles,
  listThreads,
  openThreadFile,
  readRun,
} from '../../core/admin/activity.ts'
import { toPageRequest } from '../../core/paging.ts'
import { recordedRun } from '../../core/runs/history.ts'
import { startWriting } from '../answer.ts'
import { adminOperation, type Operation, ok, okPage } from '../operation.ts'
import { pageParameters } from '../query.ts'
import { attachment, isolated } from '../rest/download-headers.ts'
import { Execution, ListedExecution, toListed, toRecorded } from '../rest/execution.ts'
import { sendAsLines } from '../rest/execution-output.ts'
import { Cancelling } from '../rest/executions.ts'
import { OutputLines } from '../rest/output-lines.ts'
import { Sandbox } from '../rest/sandboxes/schemas.ts'
import { Thread } from '../rest/threads.ts'
import { listOf, NextCursor, named, oneOf, Time } from '../schemas.ts'
import { adminGroup as group, orgPath } from './orgs.ts'

const KeyId = Type.String({ description: 'The key that started it.' })
const RunOfOrg = named('RunOfOrg', Type.Object({ ...ListedExecution.properties, key_id: KeyId }))
const RecordedRunOfOrg = named('RecordedRunOfOrg', Type.Object({ ...Execution.properties, key_id: KeyId }))

const SandboxOfOrg = named('SandboxOfOrg', Type.Object({ ...Sandbox.properties, key_id: KeyId }))

const ThreadFiles = named(
  'ThreadFiles',
  Type.Object({
    files: Type.Array(
      Type.Object({
        name: Type.String(),
        kind: oneOf(['file', 'directory', 'symlink', 'other']),
        size: Type.Integer({ minimum: 0, description: 'In bytes.' }),
        modified: Time,
      }),
    ),
    next_cursor: NextCursor,
  }),
)

const runPath = `${orgPath}/executions/{id}` as const
const threadPath = `${orgPath}/threads/{thread}` as const
const threadRefusals = [
  'threads_unavailable',
  'thread_unknown',
  'path_invalid',
  'path_not_found',
  'unavailable',
] as const

export const activityOperations: readonly Operation[] = [
  adminOperation({
    id: 'listRunsOfOrg',
    method: 'GET',
    path: `${orgPath}/executions`,
    group,
    summary: 'List the runs of all keys of an organization, newest first',
    query: {
      key_id: 'Only runs of this key.',
      thread_id: 'Only runs of this thread.',
      status: 'running, success, failed, timeout, oom or cancelled.',
      language: 'python, node, typescript or bash.',
      created_after: 'A date or time, ISO 8601.',
      created_before: 'A date or time, ISO 8601.',
      ...pageParameters,
    },
    answers: { 200: listOf(RunOfOrg) },
    refusals: [],
    handle: async ({ context, admin, params, query }) => {
      const { items, nextCursor } = await listRuns(context, admin, params.org, {
        ...toPageRequest(query),
        ...{ keyId: query.key_id, threadId: query.thread_id, status: query.status, language: query.language },
        ...{ createdAfter: query.created_after, createdBefore: query.created_before },
      })
      return okPage({ items: items.map((row) => ({ ...toListed(row), key_id: row.keyId })), nextCursor })
    },
  }),
  adminOperation({
    id: 'getRunOfOrg',
    method: 'GET',
    path: runPath,
    group,
    summary: 'Get a run of any key with its code and output; the audit log records it',
    answers: { 200: RecordedRunOfOrg },
    refusals: ['run_unknown'],
    handle: async ({ context, admin, params }) => {
      const run = await readRun(context, admin, params.org, params.id)
      return ok({ ...toRecorded(run), key_id: run.row.keyId })
    },
  }),
  adminOperation({
    id: 'followRunOfOrg',
    method: 'GET',
    path: `${runPath}/output`,
    group,
    summary: 'Follow the output of a run of any key as lines of JSON; the audit log records it',
    answers: { 200: { mediaType: 'application/x-ndjson' } },
    refusals: ['run_unknown', 'unavailable'],
    handle: async ({ server: { closing }, context, admin, params, reply }) => {
      const { org, id } = params
      // Refused and recorded here: the stream below could only report it in a line.
      await readRun(context, admin, org, id)
      const gone = new AbortController()
      reply.raw.once('close', () => gone.abort())
      const events = followRunOf(context, admin, { orgId: org, runId: id }, AbortSignal.any([gone.signal, closing]))
      const recorded = () => recordedRun(context.store, { orgId: org }, id)
      return sendAsLines(reply, id, { events, recorded }, new OutputLines('text', 0))
    },
  }),
  adminOperation({
    id: 'cancelRunOfOrg',
    method: 'POST',
    path: `${runPath}/cancel`,
    group,
    summary: 'Cancel a run of any key',
    answers: { 200: Cancelling },
    refusals: ['run_unknown', 'run_finished', 'unavailable'],
    handle: async ({ context, admin, params }) => {
      await cancelRun(context, admin, params.org, params.id)
      return ok({ trace_id: params.id, status: 'cancelling' })
    },
  }),
  adminOperation({
    id: 'listThreadsOfOrg',
    method: 'GET',
    path: `${orgPath}/threads`,
    group,
    summary: 'List the threads of an organization by name',
    query: pageParameters,
    answers: { 200: listOf(Thread) },
    refusals: ['unavailable'],
    handle: async ({ context, admin, params, query }) =>
      okPage(await listThreads(context, admin, params.org, toPageRequest(query))),
  }),
  adminOperation({
    id: 'listThreadFiles',
    method: 'GET',
    path: `${threadPath}/files`,
    group,
    summary: 'List a directory of a thread',
    query: { path: 'A directory, relative to the root of the thread; the root by default.', ...pageParameters },
    answers: { 200: ThreadFiles },
    refusals: [...threadRefusals, 'not_a_directory'],
    handle: async ({ context, admin, params, query }) => {
      const at = { orgId: params.org, thread: params.thread, path: query.path ?? '' }
      const { entries, cursor } = await listThreadFiles(context, admin, at, toPageRequest(query))
      const files = entries.map(({ name, kind, sizeBytes, modifiedMs }) => ({
        ...{ name, kind: kinds.has(kind) ? kind : 'other', size: sizeBytes },
        modified: new Date(modifiedMs).toISOString(),
      }))
      return ok({ files, next_cursor: cursor ?? null })
    },
  }),
  adminOperation({
    id: 'getThreadFile',
    method: 'GET',
    path: `${threadPath}/content`,
    group,
    summary: 'Download a file of a thread; the audit log records it',
    query: { path: 'The file, relative to the root of the thread.' },
    answers: { 200: { mediaType: 'application/octet-stream' } },
    refusals: [...threadRefusals, 'not_a_file'],
    handle: async ({ context, admin, params, query, reply }) => {
      const path = query.path ?? ''
      const file = await openThreadFile(context, admin, { orgId: params.org, thread: params.thread, path })
      reply.headers({
        'content-type': 'application/octet-stream',
        'content-disposition': attachment(path),
        'content-length': file.lengthBytes,
        ...isolated,
      })
      await sendFile(reply, file)
      return undefined
    },
  }),
  adminOperation({
    id: 'listSandboxesOfOrg',
    method: 'GET',
    path: `${orgPath}/sandboxes`,
    group,
    summary: 'List the sandboxes of all keys of an organization by namespace and name',
    query: pageParameters,
    answers: { 200: listOf(SandboxOfOrg) },
    refusals: [],
    handle: async ({ context, admin, params, query }) => {
      const { items, nextCursor } = await listSandboxes(context, admin, params.org, toPageRequest(query))
      return okPage({ items: items.map(({ keyId, ...view }) => ({ ...view, key_id: keyId })), nextCursor })
    },
  }),
]

const kinds: ReadonlySet<string> = new Set(['file', 'directory', 'symlink'])

/** Sends a file as fast as the client reads it; one that shrinks meanwhile ends the connection before its length. */
async function sendFile(
  reply: FastifyReply,
  { lengthBytes, bytes }: { lengthBytes: number; bytes: AsyncGenerator<Uint8Array, void, undefined> },
): Promise<void> {
  const writer = startWriting(reply)
  let sentBytes = 0
  try {
    for await (const piece of bytes) {
      if (writer.gone) break
      await writer.writeBytes(piece)
      sentBytes += piece.length
    }
  } catch {
    sentBytes = -1
  }
  if (sentBytes === lengthBytes) writer.end()
  else reply.raw.destroy()
}
