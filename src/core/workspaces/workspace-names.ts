import { Refusal } from '../../base/errors.ts'
import type { SandboxRef } from '../sandboxes/names.ts'

/** What a call names as its workspace. */
export type WorkspaceName =
  /** @param directory absolute path in the sandbox; absent: its working directory. */
  | { kind: 'sandbox'; ref: SandboxRef; directory: string | undefined }
  /** @param directory absolute path with the thread or volume as root; absent: all of it. */
  | { kind: 'thread' | 'volume'; id: string; directory: string | undefined }

const storageName = /^(thread|volume):([A-Za-z0-9][A-Za-z0-9._-]{0,127})(?::(\/[^\0]*))?$/
const sandboxName = /^(?:([A-Za-z0-9_-]+)\/)?([A-Za-z0-9_-]+)(?::(\/[^\0]*))?$/

/**
 * Reads `NAME`, `NAMESPACE/NAME`, `thread:ID` and `volume:SLUG`, each also with `:/DIRECTORY`.
 * @throws Refusal `invalid_argument`.
 */
export function readWorkspaceName(workspace: string): WorkspaceName {
  const storage = storageName.exec(workspace)
  if (storage) {
    const [, kind, id, directory] = storage
    if (directory?.split('/').includes('..')) throw invalid('must not contain ".." in its directory')
    return { kind: kind as 'thread' | 'volume', id: id!, directory }
  }
  const sandbox = sandboxName.exec(workspace)
  if (sandbox === null)
    throw invalid(
      'must be the name of a sandbox, optionally with a directory in it: NAME or NAME:/DIRECTORY; or thread:ID or volume:SLUG',
    )
  const [, namespace, name, directory] = sandbox
  return { kind: 'sandbox', ref: { name: name!, ...(namespace !== undefined && { namespace }) }, directory }
}

const invalid = (problem: string): Refusal => new Refusal('invalid_argument', { field: 'workspace', problem })
