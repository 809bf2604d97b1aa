import { Refusal } from '../base/errors.ts'
import type { Runner } from '../runner/messages.ts'
import type { Caller } from './caller.ts'

/** A file of the caller's org, as a client names it. */
export interface FileRequest {
  source: 'thread' | 'volume'
  /** Of the thread or volume. */
  id: string
  /** Relative to its root. */
  path: string
}

/** A file that is open for reading. */
export interface OpenFile {
  /** Bytes that `bytes` gives, unless the file shrinks meanwhile. */
  lengthBytes: number
  /** To be read once, or not at all and then to be stopped. */
  bytes: AsyncGenerator<Uint8Array, void, undefined>
  stop(): void
}

/** Part of a path on the host, so it begins with a letter or digit, and case is kept. */
const threadIds = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/

/** @param field as the client calls it. @throws Refusal invalid_argument that says the rule. */
export function checkThreadId(field: string, id: string): void {
  if (threadIds.test(id)) return
  const shown = JSON.stringify(id.length > 64 ? `${id.slice(0, 64)}…` : id)
  const problem = `must be 1 to 128 letters, digits, ".", "_" and "-", the first a letter or digit; it is ${shown}`
  throw new Refusal('invalid_argument', { field, problem })
}

/**
 * Opens a file for reading; also while a run has the thread.
 * @throws Refusal threads_unavailable, volumes_unavailable, thread_unknown (also for a thread of another org),
 * path_invalid, path_not_found, not_a_file and others.
 */
export async function openFile(runner: Runner, caller: Caller, { source, id, path }: FileRequest): Promise<OpenFile> {
  if (caller.profile.storage.kind === 'none') throw new Refusal('threads_unavailable')
  if (source === 'volume') throw new Refusal('volumes_unavailable')
  checkThreadId('id', id)
  return runner.files.read({ area: 'threads', org: caller.orgId, name: id }, path)
}
