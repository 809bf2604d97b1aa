import { operator } from '../../core/admin/admin.ts'
import { getUpstreamDetails } from '../../core/admin/upstream-installations.ts'
import type { UpstreamRef } from '../../core/admin/upstreams.ts'
import type { AdminSession } from './context.ts'

const pollMs = 500

/** Prints what the installer of a program writes last, whichever process installs it, until `work` is done. @throws what it throws. */
export async function followed<Result>(
  session: AdminSession,
  ref: UpstreamRef,
  work: Promise<Result>,
): Promise<Result> {
  let printed: string | undefined
  let polling = Promise.resolve()
  const poll = async () => {
    const { installation } = await getUpstreamDetails(session, operator, ref)
    if (installation?.state !== 'installing' || installation.last_line === printed) return
    const { last_line: line } = installation
    session.notify(`Installing ${ref.name}${line === '' ? ' …' : `: ${line}`}`)
    printed = line
  }
  const timer = setInterval(() => {
    // The work reports what is wrong.
    polling = polling.then(poll).catch(() => {})
  }, pollMs)
  try {
    return await work
  } finally {
    clearInterval(timer)
    await polling
  }
}
