/** What happens in the organizations of an administrator, as it happens. */
import { monotonicMs } from '../../base/clock.ts'
import type { RunChange } from '../runs/run-changes.ts'
import { type Admin, type AdminContext, hasRole } from './admin.ts'
import { isLiveToken } from './tokens.ts'

/** A token that was revoked meanwhile ends what it watches within this time, and actions are reported within it. */
const watchEveryMs = 1_000
/** Actions that are read at once. More at a time are reported as missed. */
const actionsMax = 500

/** How far a reader has come. */
export interface WatchPlace {
  /** Number of the last run that began or ended. */
  run: number
  /** Number of the last line of the audit log. */
  audit: number
}

/** An action that the audit log records: a change of a key, a sandbox, a profile, an upstream and so on. */
export interface AuditedAction {
  seq: number
  orgId: string | null
  actor: string
  action: string
  target: string
}

export type Watched = { run: RunChange } | { action: AuditedAction } | 'missed' | 'idle'

/**
 * Yields the runs of all keys that begin and end, and the actions of the audit log, of the organization of the
 * administrator or of all; `missed` where some were missed, and `idle` after each second. Ends when the token is no longer
 * valid. Members see the actions on sandboxes only.
 * @param after where an earlier reader was; absent: from now on.
 * @param isOver whether the reader is gone.
 */
export async function* watch(
  { store, endings: { changes } }: AdminContext,
  admin: Admin,
  after: Partial<WatchPlace> | undefined,
  isOver: () => boolean,
): AsyncGenerator<{ watched: Watched; place: WatchPlace }, void, undefined> {
  const place = { run: after?.run ?? changes.latest, audit: after?.audit ?? (await store.audit.head()).seq }
  const at = (watched: Watched) => ({ watched, place: { ...place } })
  let lookedMs = Number.NEGATIVE_INFINITY
  while (!isOver()) {
    const { latest } = changes
    const runs = changes.after(place.run, admin.orgId)
    if (runs === undefined) yield at('missed')
    for (const run of runs ?? []) {
      place.run = run.seq
      yield at({ run })
    }
    place.run = latest
    // Not for each run: every run that ends adds a line to the audit log.
    if (monotonicMs() - lookedMs >= watchEveryMs) {
      lookedMs = monotonicMs()
      if (!(await isLiveToken(store, admin.id))) return
      const { actions, head, isWhole } = await actionsAfter(store, admin, place.audit)
      for (const action of actions) {
        place.audit = action.seq
        yield at({ action })
      }
      place.audit = head
      if (!isWhole) yield at('missed')
    }
    yield at('idle')
    await changes.next(Math.max(1, lookedMs + watchEveryMs - monotonicMs()))
  }
}

async function actionsAfter(
  store: AdminContext['store'],
  admin: Admin,
  seq: number,
): Promise<{ actions: readonly AuditedAction[]; head: number; isWhole: boolean }> {
  const { seq: head } = await store.audit.head()
  if (head === seq) return { actions: [], head, isWhole: true }
  const orgId = admin.orgId ?? undefined
  const { rows, resumeAfter } = await store.audit.list({ orgId, exceptAction: 'run' }, seq, actionsMax)
  const isWhole = rows.length < actionsMax && resumeAfter === undefined && seq <= head
  const mayRead = ({ action }: AuditedAction) => hasRole(admin, 'admin') || action.startsWith('sandbox.')
  return { actions: rows.filter(mayRead), head: Math.max(head, rows.at(-1)?.seq ?? 0), isWhole }
}
