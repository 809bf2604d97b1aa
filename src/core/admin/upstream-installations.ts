import { type Installation, installationIn } from '../upstreams/programs/installations.ts'
import { toProgramTarget } from '../upstreams/programs/sandbox-spec.ts'
import { type Admin, type AdminContext, requireInOrg } from './admin.ts'
import type { UpstreamView } from './upstream-view.ts'
import { existing, getUpstream, targetOf, type UpstreamRef } from './upstreams.ts'

/** An upstream with the installation of its program. */
export interface UpstreamDetails extends UpstreamView {
  /** `null` if none is in progress and the latest one did not fail. */
  installation: Installation | null
}

/** Returns an upstream, and whether its program is being installed. @throws Refusal not_found. */
export async function getUpstreamDetails(on: AdminContext, admin: Admin, ref: UpstreamRef): Promise<UpstreamDetails> {
  const view = await getUpstream(on, admin, ref)
  const stored = installationIn(await on.store.upstreamSandboxes.get(view.id, ''))
  const own = on.programs.background.of(view.id)
  const isOwn = stored === null || (own?.state === 'installing' && stored.state === 'failed')
  return { ...view, installation: isOwn ? own : stored }
}

/**
 * Reads an upstream. If its program must be installed first, which can take minutes, does it in the background.
 * @param read connects to the upstream.
 * @returns what `read` returns, or the upstream whose program is being installed.
 * @throws Refusal forbidden, not_found, and what `read` throws.
 */
export async function readUnlessInstalling<Result>(
  on: AdminContext,
  admin: Admin,
  ref: UpstreamRef,
  read: () => Promise<Result>,
): Promise<{ result: Result } | { installing: UpstreamDetails }> {
  await requireInOrg(on.store, admin, 'admin', ref.orgId)
  const row = await existing(on, ref)
  const { background } = on.programs
  if (row.transport === 'stdio' && (await on.programs.mustInstall(toProgramTarget(targetOf(on, row))))) {
    background.begin(row.id, read)
  }
  if (background.of(row.id)?.state === 'installing') return { installing: await getUpstreamDetails(on, admin, ref) }
  const result = await read()
  const sandbox = await on.store.upstreamSandboxes.get(row.id, '')
  // It works, whatever the latest installation did.
  background.forget(row.id)
  if (installationIn(sandbox)?.state === 'failed') {
    await on.store.upstreamSandboxes.update(sandbox!.id, { installation: null })
  }
  return { result }
}
