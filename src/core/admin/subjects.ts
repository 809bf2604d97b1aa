import { createHmac, randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs, timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { RunnerFiles } from '../../runner/protocol/messages.ts'
import type { RunRow, Store } from '../../store/store.ts'
import { eachLine, eraseAction, toRecord } from '../audit/audit.ts'
import { checkSubject } from '../audit/subjects.ts'
import { recordedRun, resultOf } from '../runs/history.ts'
import { toTranscript } from '../runs/transcript.ts'
import { type Admin, type AdminContext, requireInOrg, withAudit } from './admin.ts'

/** One record of the stored data of a subject. */
export type SubjectRecord = Record<string, unknown> & { type: 'run' | 'thread' | 'file' | 'audit' }

const pageRows = 100
const listedFiles = 1_000

/**
 * Exports all stored data of a subject: runs with their output, threads with a list of their files, and audit lines.
 * @param files lists the files of threads; if it is absent, files are omitted.
 * @throws Refusal forbidden, not_found, invalid_argument.
 */
export async function exportSubject(
  { store }: AdminContext,
  admin: Admin,
  orgId: string,
  { subject: asked, files }: { subject: string; files?: RunnerFiles },
): Promise<AsyncGenerator<SubjectRecord, void, undefined>> {
  await requireInOrg(store, admin, 'admin', orgId)
  const subject = nameOf(asked)
  const details = { subject_digest: digestOf(subject) }
  await withAudit(store, { admin, action: 'subject.export', orgId, target: orgId, details }, async () => {})
  return recordsOf(store, orgId, subject, files)
}

async function* recordsOf(store: Store, orgId: string, subject: string, files: RunnerFiles | undefined) {
  for await (const row of runsOf(store, orgId, subject)) yield await toRunRecord(store, row)
  for (const { id, createdAt, lastUsedAt } of await store.subjects.threads(orgId, subject)) {
    yield { type: 'thread', id, created_at: createdAt, last_used_at: lastUsedAt } satisfies SubjectRecord
    if (files) yield* filesOf(files, orgId, id, '')
  }
  for await (const line of eachLine(store, { orgId, subject })) {
    yield { type: 'audit', ...toRecord(line) } satisfies SubjectRecord
  }
}

async function* runsOf(store: Store, orgId: string, subject: string): AsyncGenerator<RunRow, void, undefined> {
  for (let after = { createdAt: '', id: '' }; ; ) {
    const rows = await store.subjects.runs(orgId, subject, after, pageRows)
    yield* rows
    const last = rows.at(-1)
    if (last === undefined || rows.length < pageRows) return
    after = last
  }
}

async function toRunRecord(store: Store, row: RunRow): Promise<SubjectRecord> {
  const { output, code } = await recordedRun(store, row, row.id)
  const texts = row.finishedAt === null ? undefined : toTranscript(row.id, resultOf(row), output)
  return {
    type: 'run',
    trace_id: row.id,
    thread_id: row.threadId,
    language: row.language,
    code_hash: row.codeHash,
    code,
    env_names: JSON.parse(row.envNames) as unknown,
    metadata: row.metadata === null ? null : (JSON.parse(row.metadata) as unknown),
    ending: row.ending,
    files: row.result?.files ?? null,
    stdout: output && texts ? texts.stdout.text : null,
    stderr: output && texts ? texts.stderr.text : null,
    created_at: row.createdAt,
    completed_at: row.finishedAt,
  }
}

/** Yields the names and sizes of all files of a thread; their content is downloaded with the Files API. */
async function* filesOf(
  files: RunnerFiles,
  orgId: string,
  thread: string,
  directory: string,
): AsyncGenerator<SubjectRecord, void, undefined> {
  const where = { area: 'threads', org: orgId, name: thread } as const
  for (let cursor: string | undefined; ; ) {
    const page = { limit: listedFiles, ...(cursor !== undefined && { cursor }) }
    const listing = await files.list(where, directory, page).catch(ifThere)
    for (const { name, kind, sizeBytes, modifiedMs } of listing?.entries ?? []) {
      const path = directory === '' ? name : `${directory}/${name}`
      if (kind === 'directory') yield* filesOf(files, orgId, thread, path)
      else yield { type: 'file', thread, path, kind, size: sizeBytes, modified: new Date(modifiedMs).toISOString() }
    }
    cursor = listing?.cursor
    if (cursor === undefined) return
  }
}

/** Ignores missing files: an unused thread has none, and a run can delete files during the export. */
function ifThere(error: unknown): undefined {
  if (error instanceof Refusal && ['thread_unknown', 'path_not_found', 'not_a_directory'].includes(error.code)) return
  throw error
}

/** Time to wait for the server to erase the threads. */
const erasedWithinMs = 60_000
const lookEveryMs = 100

/** Numbers of erased records. */
export interface Erased {
  runs: number
  threads: number
  audit_lines: number
}

/**
 * Erases all stored data of a subject. The audit log can still be verified: its lines stay, without their personal data,
 * and a new line lists them. An interrupted erasure can be repeated.
 * @throws Refusal subject_active if one of its runs or threads is in use; unavailable if no server erases the threads in
 * time; forbidden, not_found, invalid_argument.
 */
export async function eraseSubject(on: AdminContext, admin: Admin, orgId: string, asked: string): Promise<Erased> {
  const { store } = on
  await requireInOrg(store, admin, 'admin', orgId)
  const subject = nameOf(asked)
  if (await store.subjects.isActive(orgId, subject)) throw new Refusal('subject_active', { what: 'a run' })
  const threads = await store.subjects.threads(orgId, subject)
  for (const { id, state } of threads) {
    const isGoing = state !== null || (await store.threads.beginRemoval(orgId, id, timestamp()))
    if (!isGoing) throw new Refusal('subject_active', { what: `the thread ${id}` })
  }
  await threadsGone(store, orgId, subject)
  const erased = await store.subjects.erase(orgId, subject, ({ runs, auditLines }) => ({
    at: timestamp(),
    orgId,
    actor: admin.id,
    action: eraseAction,
    target: orgId,
    details: { subject_digest: digestOf(subject), runs, threads: threads.length, audit_lines: auditLines },
    personal: null,
    subject: null,
  }))
  if (erased === 'in_use') throw new Refusal('subject_active', { what: 'a run' })
  const lines = erased.auditLines.reduce((sum, [first, last]) => sum + last - first + 1, 0)
  return { runs: erased.runs, threads: threads.length, audit_lines: lines }
}

/** Waits until the server has erased the marked threads, which takes seconds. @throws Refusal unavailable. */
async function threadsGone(store: Store, orgId: string, subject: string): Promise<void> {
  const untilMs = monotonicMs() + erasedWithinMs
  while ((await store.subjects.threads(orgId, subject)).length > 0) {
    if (monotonicMs() > untilMs)
      throw new Refusal('unavailable', { reason: 'no server has erased the threads in time' })
    await sleep(lookEveryMs)
  }
}

function nameOf(asked: string): string {
  const subject = checkSubject('subject', asked)
  if (subject === null) throw new Refusal('invalid_argument', { field: 'subject', problem: 'is required and missing' })
  return subject
}

/** Returns a salted digest of the name, which can later be compared without revealing the name. */
function digestOf(subject: string): string {
  const salt = randomBytes(16).toString('hex')
  return `${salt}:${createHmac('sha256', salt).update(subject).digest('hex')}`
}
