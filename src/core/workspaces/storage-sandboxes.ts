import { Refusal } from '../../base/errors.ts'
import { homeDirectory } from '../../base/sandbox.ts'
import type { Rights } from '../access/rights.ts'
import type { Caller } from '../caller.ts'
import { defaultNamespace } from '../sandboxes/names.ts'
import type { SandboxRequest } from '../sandboxes/settings.ts'
import type { ThreadLocks } from '../storage/thread-locks.ts'
import type { WorkspacePlace } from './sandbox-host.ts'

interface NamedStorage {
  id: string
  directory: string | undefined
}

/** The user of runs, so that runs and tools can change the files of each other. */
const user = '1000'
/** Holds only what programs write outside of the thread or volume. */
const diskBytes = 64 * 1024 * 1024
const idleMaxMs = 300_000

/**
 * Sandboxes for threads and volumes as workspaces: one for each key, whose environment and network they have. A sandbox of a
 * thread locks it, as a run does, and is deleted when a run or an operation needs the thread while no call uses it.
 */
export class StorageSandboxes {
  readonly #threads: ThreadLocks
  readonly #rights: Pick<Rights, 'require'>

  constructor(threads: ThreadLocks, rights: Pick<Rights, 'require'>) {
    this.#threads = threads
    this.#rights = rights
  }

  /** @throws Refusal threads_unavailable; permission_denied for a key that may not use files of threads. */
  async ofThread(caller: Caller, { id, directory }: NamedStorage, use: 'read' | 'write'): Promise<WorkspacePlace> {
    const { storage, name: profile } = caller.profile
    if (storage.kind === 'none') throw new Refusal('threads_unavailable')
    await this.#rights.require(caller, use === 'read' ? 'files.read' : 'files.write')
    const asked = { id, quota: storage.quota, profile }
    return {
      ref: refOf(caller, `thread:${id}`),
      request: { ...requestOf(caller), storage: { area: 'threads', id }, volumes: [], workdir: homeDirectory },
      directory: below(homeDirectory, directory),
      // A call for a busy thread writes no rows.
      beforeStart: () => this.#threads.expectFree(caller.orgId, asked),
    }
  }

  /** @throws Refusal volume_unknown; permission_denied for a key that may not use files of volumes. */
  async ofVolume(caller: Caller, { id, directory }: NamedStorage, use: 'read' | 'write'): Promise<WorkspacePlace> {
    const volume = caller.profile.volumes.find(({ slug }) => slug === id)
    if (volume === undefined) throw new Refusal('volume_unknown', { volume: id })
    await this.#rights.require(caller, use === 'read' ? 'files.read' : 'files.write')
    const workdir = `/volumes/${id}`
    return {
      ref: refOf(caller, `volume:${id}`),
      request: { ...requestOf(caller), storage: { area: 'volumes', id }, volumes: [id], workdir },
      directory: below(workdir, directory),
    }
  }
}

/** Clients cannot give a sandbox such a name. The namespace is one that the key may use. */
const refOf = ({ keyId, namespaces }: Caller, storage: string) => ({
  name: `${storage}:${keyId}`,
  namespace: namespaces?.includes(defaultNamespace) === false ? namespaces[0]! : defaultNamespace,
})

function requestOf({ profile: { sandboxes } }: Caller): SandboxRequest {
  return {
    user,
    diskBytes: Math.min(diskBytes, sandboxes.diskMaxBytes),
    onEnd: 'delete',
    idleTimeoutMs: Math.min(idleMaxMs, sandboxes.idleMs ?? idleMaxMs),
  }
}

const below = (root: string, directory: string | undefined): string | undefined =>
  directory === undefined ? undefined : `${root}${directory}`
