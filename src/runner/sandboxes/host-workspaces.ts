import { Refusal } from '../../base/errors.ts'
import type { HostWorkspace, Review } from '../../base/host-workspace.ts'
import { deletePath } from '../../storage/deletion.ts'
import type { OtherMount } from '../../storage/dock.ts'
import type { Mounted } from '../../storage/filesystems.ts'
import { mountHostDirectory, mountReviewed, openHostDirectory, reviewDirectory } from '../../storage/host-directory.ts'
import type { MountCache } from '../../storage/mount-cache.ts'
import { parsePath } from '../../storage/paths.ts'
import { applyChange, changesOf } from '../../storage/review.ts'
import { openDirectory } from '../../storage/walk.ts'
import type { ReviewRequest } from '../protocol/sandboxes.ts'

/** The directories of the host that the operator named, and the changes that are kept for review. */
export class HostWorkspaces {
  readonly #known: ReadonlyMap<string, HostWorkspace>
  readonly #places: string

  /** @param places directory for mounts that exist for a moment. */
  constructor(workspaces: readonly HostWorkspace[], places: string) {
    this.#known = new Map(workspaces.map((workspace) => [workspace.name, workspace]))
    this.#places = places
  }

  /** BOUNDARY: the front names a workspace, never a directory. @throws Refusal invalid_argument. */
  get(name: string): HostWorkspace {
    const workspace = this.#known.get(name)
    if (workspace) return workspace
    throw new Refusal('invalid_argument', { field: 'workspace', problem: 'is not a workspace of the configuration' })
  }

  /** Returns the mount of a workspace for a slot. @param disk of the sandbox, which keeps changes for review. */
  mountOf(workspace: HostWorkspace, disk: Mounted, initPid: number): OtherMount {
    const { name, directory, mode } = workspace
    return {
      name,
      mount: (target) => {
        switch (mode) {
          case 'read-write':
          case 'read-only':
            return mountHostDirectory(directory, target, initPid, mode === 'read-only')
          case 'review':
            return mountReviewed(workspace, target, initPid, disk, this.#places)
        }
      },
    }
  }

  /** Lists changes. Nothing has changed while there is no disk. */
  async changes(mounts: MountCache, asked: ReviewRequest, paths: readonly string[] | undefined): Promise<Review> {
    return this.#inReview(mounts, asked, (upper, host) => changesOf(upper, host, paths, asked.act === 'diff'))
  }

  /** Applies or drops changes, and returns them. The sandbox must be stopped. @throws Refusal path_not_found and others. */
  async settle(mounts: MountCache, asked: ReviewRequest, paths: readonly string[] | undefined): Promise<Review> {
    const { directory } = this.get(asked.workspace)
    const settled = await this.#inReview(mounts, asked, async (upper, host, disk) => {
      const review = await changesOf(upper, host, paths, false)
      if (review.isIncomplete && paths === undefined && asked.act === 'apply') throw tooMany
      const missing = paths?.find((path) => !review.changes.some((change) => isOf(change.path, path)))
      if (missing !== undefined) throw new Refusal('path_not_found', { path: missing.slice(0, 300) })
      if (asked.act === 'apply') {
        await using root = await openHostDirectory(directory)
        const owner = await root.stat()
        for (const change of review.changes) await applyChange(change, upper, host, owner)
      }
      const kept = reviewDirectory(asked.workspace)
      if (paths === undefined) await erase(disk, kept)
      else for (const path of paths) await erase(disk, `${kept}/upper/${path.replace(/\/+$/, '')}`)
      return review
    })
    if (settled === nothing && paths?.[0] !== undefined)
      throw new Refusal('path_not_found', { path: paths[0].slice(0, 300) })
    return settled
  }

  async #inReview(
    mounts: MountCache,
    { orgId, sandboxId, workspace }: ReviewRequest,
    work: (upper: number, host: number, disk: number) => Promise<Review>,
  ): Promise<Review> {
    const { directory, name } = this.get(workspace)
    const lease = await mounts
      .acquire({ area: 'sandboxes', org: orgId, name: sandboxId }, undefined)
      .catch(unlessMissing)
    if (lease === undefined) return nothing
    try {
      const disk = lease.mounted.root.fd
      const opened = await openDirectory(disk, parsePath(`${reviewDirectory(name)}/upper`)).catch(unlessMissing)
      if (opened === undefined) return nothing
      await using upper = opened
      await using host = await openHostDirectory(directory)
      return await work(upper.fd, host.fd, disk)
    } finally {
      lease.release()
    }
  }
}

const nothing: Review = { changes: [], unsupported: [], isIncomplete: false }

const tooMany = new Refusal('invalid_argument', {
  field: 'paths',
  problem: 'is required: there are too many changes to apply at once, so apply them by directory',
})

const isOf = (path: string, wanted: string): boolean => {
  const entry = wanted.replace(/\/+$/, '')
  return path === entry || path.startsWith(`${entry}/`)
}

/** There is no disk or no change yet. */
function unlessMissing(error: unknown): undefined {
  const isMissing = error instanceof Refusal && (error.row.http === 404 || error.code === 'path_not_found')
  if (!isMissing) throw error
  return undefined
}

async function erase(disk: number, path: string): Promise<void> {
  while (!(await deletePath(disk, path, true)).complete);
}
