import { closeSync, openSync } from 'node:fs'
import { kernel } from '../../kernel/kernel.ts'
import type { RunSlot } from '../slots/run-slot.ts'

/** Connects a jail to the outside. The engine knows only when: before the code of the jail starts. */
export interface NetworkOfJail {
  /** @param namespace descriptor of the network namespace of the jail, which the callee closes. */
  open(namespace: number): Promise<void>
}

/**
 * Opens the network of a jail whose main process waits.
 *
 * BOUNDARY: the process is held against its cgroup once more when its namespace is open, since its number may belong to
 * another one meanwhile.
 * @param pid its number on the host.
 * @throws Error when its namespace or its network cannot be opened.
 */
export async function openNetwork({ cgroup }: RunSlot, pid: number, network: NetworkOfJail): Promise<void> {
  await network.open(openNamespace(cgroup, pid))
}

/** Connects to a server on the loopback of a jail. @returns a descriptor. @throws Error when nothing accepts it. */
export async function connectInJail({ cgroup }: RunSlot, pid: number, port: number): Promise<number> {
  const namespace = openNamespace(cgroup, pid)
  try {
    return await kernel.connectInJail(namespace, port)
  } finally {
    closeSync(namespace)
  }
}

function openNamespace(cgroup: RunSlot['cgroup'], pid: number): number {
  const namespace = openSync(`/proc/${pid}/ns/net`, 'r')
  if (cgroup.holds(pid)) return namespace
  closeSync(namespace)
  throw new Error('the process of the jail has ended')
}
