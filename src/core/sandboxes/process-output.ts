import { setTimeout as delay } from 'node:timers/promises'
import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { ProcessEnding, ProcessEvent, ProcessStatus } from '../../base/sandbox.ts'
import { type CommandOutput, CommandOutputFold } from './command-output.ts'
import type { OpenSandbox } from './open-sandbox.ts'

/** Output of a process after a cursor. */
export interface ProcessPoll extends CommandOutput {
  /** For the next call, which returns what follows. */
  cursor: number
  ending?: ProcessEnding
}

/** Output that one poll returns at most. */
const pollMaxBytes = 1024 * 1024
/** Longest wait of one call: common clients and proxies time out after a minute. */
const waitMaxMs = 50_000
/** Output that arrives within this time is returned by the same poll: programs write lines one by one. */
const quietMs = 15
/** Cursor of a reader that needs no earlier output. */
const newest = Number.MAX_SAFE_INTEGER

/** @throws Refusal process_unknown. */
export async function statusOf({ row, processes }: OpenSandbox, processId: number): Promise<ProcessStatus> {
  const status = (await processes.list(row.id)).find((known) => known.processId === processId)
  if (status === undefined) throw new Refusal('process_unknown', { process: processId })
  return status
}

/** See `SandboxProcesses.poll`. */
export async function pollProcess(
  sandbox: OpenSandbox,
  processId: number,
  { cursor, waitMs, signal }: { cursor: number; waitMs: number; signal: AbortSignal },
): Promise<ProcessPoll> {
  await statusOf(sandbox, processId)
  const fold = new CommandOutputFold(pollMaxBytes * 2)
  const events = sandbox.processes.attach(sandbox.row.id, processId, cursor)
  const untilMs = monotonicMs() + Math.min(waitMs, waitMaxMs)
  let last = cursor
  let ending: ProcessEnding | undefined
  try {
    while (ending === undefined && fold.totalBytes < pollMaxBytes) {
      const patienceMs = last === cursor ? Math.max(untilMs - monotonicMs(), quietMs) : quietMs
      const next = await within(events.next(), patienceMs, signal)
      if (next === undefined || next.done) break
      last = next.value.seq
      if (next.value.kind === 'ended') ending = next.value.ending
      else fold.add(next.value)
    }
  } finally {
    await events.return?.()
  }
  return { ...fold.end(), cursor: last, ...(ending && { ending }) }
}

/** Waits for the end of a process. @returns its status, without an ending if the time was too short. */
export async function waitForProcess(
  sandbox: OpenSandbox,
  processId: number,
  { waitMs, signal }: { waitMs: number; signal: AbortSignal },
): Promise<ProcessStatus> {
  const status = await statusOf(sandbox, processId)
  if (status.ending) return status
  const events = sandbox.processes.attach(sandbox.row.id, processId, newest)
  const untilMs = monotonicMs() + Math.min(waitMs, waitMaxMs)
  try {
    for (;;) {
      const next = await within(events.next(), Math.max(untilMs - monotonicMs(), 0), signal)
      if (next === undefined || next.done) return status
      if (next.value.kind === 'ended') return { ...status, ending: next.value.ending }
    }
  } finally {
    await events.return?.()
  }
}

/** Waits for the end of a process that was killed. */
export async function awaitEnd({ row, processes }: OpenSandbox, processId: number): Promise<void> {
  for await (const event of processes.attach(row.id, processId, newest)) if (event.kind === 'ended') break
}

/** Yields the events of a process to its end, or until the signal aborts, and ends the use of its sandbox. */
export async function* followProcess(
  { row, processes, close }: OpenSandbox,
  processId: number,
  afterSeq: number,
  signal: AbortSignal,
): AsyncGenerator<ProcessEvent, void, undefined> {
  const events = processes.attach(row.id, processId, afterSeq)
  const leave = () => void events.return?.()
  signal.addEventListener('abort', leave, { once: true })
  try {
    for await (const event of events) yield event
  } finally {
    signal.removeEventListener('abort', leave)
    close()
  }
}

/** Returns what a promise resolves to, or `undefined` after a time or when the signal aborts. */
async function within<Result>(promise: Promise<Result>, ms: number, signal: AbortSignal): Promise<Result | undefined> {
  const settled = new AbortController()
  promise.catch(() => {})
  try {
    return await Promise.race([
      promise,
      delay(ms, undefined, { signal: AbortSignal.any([settled.signal, signal]) }).catch(() => undefined),
    ])
  } finally {
    settled.abort()
  }
}
