/** What all keys of an organization do, for its administrators: runs, threads and their files. */
import { Refusal } from '../../base/errors.ts'
import type { RunEvent } from '../../base/run.ts'
import type { FileStream, RunnerFiles } from '../../runner/protocol/messages.ts'
import type { SandboxRow } from '../../store/sandbox-rows.ts'
import type { ThreadRow } from '../../store/storage-rows.ts'
import type { RunRow } from '../../store/store.ts'
import { type Page, type PageRequest, page } from '../paging.ts'
import { followRun, type HistoryQuery, type RecordedRun, recordedRun, runsOf } from '../runs/history.ts'
import { type SandboxView, toView as toSandboxView } from '../sandboxes/view.ts'
import { checkThreadId } from '../storage/files.ts'
import { type ThreadView, toView } from '../storage/threads.ts'
import { type Admin, type AdminContext, requireInOrg, withAudit } from './admin.ts'
import { isLiveToken } from './tokens.ts'

/** A token that was revoked meanwhile ends what it watches within this time. */
const watchEveryMs = 1_000

/** Lists the runs of all keys, newest first. @throws Refusal forbidden, not_found, invalid_argument. */
export async function listRuns(
  { store, searches }: AdminContext,
  admin: Admin,
  orgId: string,
  query: HistoryQuery,
): Promise<Page<RunRow>> {
  await requireInOrg(store, admin, 'member', orgId)
  return searches.run(orgId, () => runsOf(store, { orgId }, query))
}

/** Returns a run with its code and output. The audit log records who read it. @throws Refusal forbidden, run_unknown. */
export async function readRun(
  { store }: AdminContext,
  admin: Admin,
  orgId: string,
  runId: string,
): Promise<RecordedRun> {
  await requireInOrg(store, admin, 'admin', orgId)
  const run = await recordedRun(store, { orgId }, runId)
  await withAudit(store, { admin, action: 'run.read', orgId, target: run.row.id }, async () => {})
  return run
}

/**
 * Yields the events of a run from its beginning to its end. The audit log records who follows it. Ends early when the
 * token is no longer valid.
 * @param signal ends the iteration.
 * @throws Refusal forbidden, run_unknown, unavailable.
 */
export async function* followRunOf(
  context: AdminContext,
  admin: Admin,
  { orgId, runId }: { orgId: string; runId: string },
  signal: AbortSignal,
): AsyncGenerator<RunEvent, void, undefined> {
  const { store, endings } = context
  const runner = connected(context.runner)
  const revoked = new AbortController()
  const timer = setInterval(() => {
    void isLiveToken(store, admin.id).then((isLive) => isLive || revoked.abort())
  }, watchEveryMs).unref()
  try {
    yield* followRun({ store, runner, endings }, { orgId }, runId, AbortSignal.any([signal, revoked.signal]))
  } finally {
    clearInterval(timer)
  }
}

/** Cancels a run. @throws Refusal forbidden, run_unknown, run_finished, unavailable. */
export async function cancelRun(
  { store, runner }: AdminContext,
  admin: Admin,
  orgId: string,
  runId: string,
): Promise<void> {
  await requireInOrg(store, admin, 'admin', orgId)
  const { row } = await recordedRun(store, { orgId }, runId)
  if (row.finishedAt !== null) throw new Refusal('run_finished', { runId: row.id })
  await withAudit(store, { admin, action: 'run.cancel', orgId, target: row.id }, async () => {})
  await connected(runner).cancel(row.id, 'cancelled')
}

/** Lists the threads of an organization by name. @throws Refusal forbidden, not_found, invalid_argument, unavailable. */
export async function listThreads(
  { store, runner }: AdminContext,
  admin: Admin,
  orgId: string,
  asked: PageRequest,
): Promise<Page<ThreadView>> {
  await requireInOrg(store, admin, 'member', orgId)
  const { items, nextCursor } = await page(
    asked,
    [''],
    ({ id }: ThreadRow) => [id],
    ([after], limit) => store.threads.page(orgId, after, limit),
  )
  const sizes = await connected(runner).storage.sizes(
    'threads',
    orgId,
    items.map(({ id }) => id),
  )
  return { items: items.map((row, at) => toView(row, sizes[at] ?? 0)), nextCursor }
}

/** Lists the sandboxes of all keys by namespace and name. @throws Refusal forbidden, not_found. */
export async function listSandboxes(
  { store }: AdminContext,
  admin: Admin,
  orgId: string,
  asked: PageRequest,
): Promise<Page<SandboxView & { keyId: string }>> {
  await requireInOrg(store, admin, 'member', orgId)
  const { items, nextCursor } = await page(
    asked,
    ['', ''],
    ({ namespace, name }: SandboxRow) => [namespace, name],
    ([namespace, name], limit) =>
      store.sandboxes.page(orgId, { namespaces: null, states: null }, { namespace, name }, limit),
  )
  return { items: items.map((row) => ({ ...toSandboxView(row), keyId: row.keyId })), nextCursor }
}

/** Names a directory or a file of a thread. */
export interface ThreadPath {
  orgId: string
  thread: string
  /** Relative to the root of the thread. */
  path: string
}

/** Lists a page of a directory of a thread. @throws Refusal forbidden, thread_unknown, not_a_directory, path_invalid. */
export async function listThreadFiles(
  { store, runner }: AdminContext,
  admin: Admin,
  { orgId, thread, path }: ThreadPath,
  { cursor, limit = 200 }: PageRequest,
): Promise<Awaited<ReturnType<RunnerFiles['list']>>> {
  await requireInOrg(store, admin, 'admin', orgId)
  checkThreadId('thread', thread)
  const where = { area: 'threads', org: orgId, name: thread } as const
  return connected(runner).files.list(where, path, { limit, ...(cursor !== undefined && { cursor }) })
}

/**
 * Opens a file of a thread. The audit log records who opened it.
 * @returns its content, which must be read once or stopped.
 * @throws Refusal forbidden, thread_unknown, not_a_file, path_invalid, path_not_found.
 */
export async function openThreadFile(
  { store, runner }: AdminContext,
  admin: Admin,
  { orgId, thread, path }: ThreadPath,
): Promise<FileStream> {
  await requireInOrg(store, admin, 'admin', orgId)
  checkThreadId('thread', thread)
  const file = await connected(runner).files.read({ area: 'threads', org: orgId, name: thread }, path)
  try {
    await withAudit(store, { admin, action: 'file.read', orgId, target: thread, details: { path } }, async () => {})
  } catch (error) {
    file.stop()
    throw error
  }
  return file
}

/** @throws Refusal unavailable in a command, which has no runner. */
function connected(runner: AdminContext['runner']): NonNullable<AdminContext['runner']> {
  if (runner === undefined) throw new Refusal('unavailable', { reason: 'only the server can do this' })
  return runner
}
