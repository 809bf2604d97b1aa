import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { isSandboxId } from '../../base/ids.ts'
import type { Rows } from '../../store/admin-store.ts'
import type { SandboxRow } from '../../store/sandbox-rows.ts'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import { namespaceOf, type SandboxRef } from './names.ts'
import { type SandboxChange, sourcesOf } from './states.ts'

/** The actor of changes that no caller requested. */
export const systemActor = 'system'

/**
 * Finds a sandbox of the caller by name or ID.
 * @throws Refusal sandbox_unknown (also for one of another organization), namespace_denied, invalid_argument.
 */
export async function findSandbox(store: Store, caller: Caller, ref: SandboxRef): Promise<SandboxRow> {
  const row = isSandboxId(ref.name) ? await byId(store, caller, ref) : await byName(store, caller, ref)
  if (row !== undefined && row.state !== 'removing') return row
  const { namespaces } = caller
  const namespace = ref.namespace ?? (namespaces?.length === 1 ? namespaces[0]! : 'default')
  throw new Refusal('sandbox_unknown', { sandbox: ref.name.slice(0, 128), namespace })
}

async function byName(store: Store, caller: Caller, { name, namespace }: SandboxRef): Promise<SandboxRow | undefined> {
  return store.sandboxes.get(caller.orgId, namespaceOf(caller, namespace), name)
}

async function byId(store: Store, caller: Caller, { name, namespace }: SandboxRef): Promise<SandboxRow | undefined> {
  const row = await store.sandboxes.byId(name)
  if (row?.orgId !== caller.orgId) return undefined
  if (namespace !== undefined && namespaceOf(caller, namespace) !== row.namespace) return undefined
  return caller.namespaces === undefined || caller.namespaces.includes(row.namespace) ? row : undefined
}

/** Who changes a sandbox, and how the audit log names it. */
export interface Act {
  /** ID of a key, or `system`. */
  actor: string
  action: 'create' | 'start' | 'stop' | 'pause' | 'resume' | 'remove' | 'extend' | 'crash' | 'publish' | 'withdraw'
  details?: Readonly<Record<string, unknown>>
}

/** Runs `work` and writes its audit line in one transaction. */
export const auditedChange = <Result>(
  store: Store,
  { id, orgId, namespace, name }: Pick<SandboxRow, 'id' | 'orgId' | 'namespace' | 'name'>,
  { actor, action, details = {} }: Act,
  work: (rows: Rows) => Promise<Result>,
): Promise<Result> =>
  store.audited(
    {
      at: timestamp(),
      orgId,
      actor,
      action: `sandbox.${action}`,
      target: id,
      details: { namespace, name, ...details },
      personal: null,
      subject: null,
    },
    work,
  )

/**
 * Applies a change to the row, if it is possible in the state of the sandbox.
 * @returns whether it was.
 */
export async function moveRow(
  rows: Pick<Rows, 'sandboxes'>,
  id: string,
  change: SandboxChange,
  changes: Parameters<Rows['sandboxes']['move']>[3] = {},
): Promise<boolean> {
  for (const [to, from] of sourcesOf(change)) {
    if (await rows.sandboxes.move(id, from, to, changes)) return true
  }
  return false
}
