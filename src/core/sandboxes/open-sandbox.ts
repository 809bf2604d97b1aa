import type { RunnerSandboxes } from '../../runner/protocol/sandboxes.ts'
import type { SandboxRow } from '../../store/sandbox-rows.ts'
import type { Caller } from '../caller.ts'
import { notRunning, type SandboxLifecycle } from './lifecycle.ts'
import type { SandboxRef } from './names.ts'
import { findSandbox } from './sandbox-rows.ts'

/** A running sandbox that a call uses. */
export interface OpenSandbox extends Pick<RunnerSandboxes, 'processes'> {
  row: SandboxRow
  /** Ends the use; the idle time begins. Can be called twice. */
  close(): void
}

/** Begins the use of a running sandbox. @throws Refusal sandbox_unknown, sandbox_not_running. */
export async function openSandbox(lifecycle: SandboxLifecycle, caller: Caller, ref: SandboxRef): Promise<OpenSandbox> {
  const row = await findSandbox(lifecycle.deps.store, caller, ref)
  if (row.state !== 'running') throw notRunning(row)
  const { processes } = lifecycle.deps.runner
  return { row, processes, close: lifecycle.activity.begin(row.id) }
}

/** Uses a running sandbox for the time of one call. @throws Refusal as `openSandbox`, and those of the runner. */
export async function withSandbox<Result>(
  lifecycle: SandboxLifecycle,
  caller: Caller,
  ref: SandboxRef,
  work: (sandbox: OpenSandbox) => Promise<Result>,
): Promise<Result> {
  const sandbox = await openSandbox(lifecycle, caller, ref)
  try {
    return await lifecycle.asked(sandbox.row, () => work(sandbox))
  } finally {
    sandbox.close()
  }
}
