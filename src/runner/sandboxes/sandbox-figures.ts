import type { SandboxFigures, SandboxSpec } from '../../base/sandbox.ts'
import { usageOf } from '../../storage/filesystems.ts'
import type { SandboxParts } from './sandbox-parts.ts'

/** Tasks of a sandbox besides its processes: the jailer and the agent. */
const ownTasks = 2

/** What a sandbox that runs consumes. */
export async function figuresOf(
  { limits, disk }: SandboxSpec,
  parts: SandboxParts,
): Promise<Omit<SandboxFigures, 'uptimeMs'>> {
  const { cpuSeconds, memoryBytes, tasks } = parts.slot.consumption()
  const { usedBytes } = await usageOf(parts.disk)
  const counts = await parts.network?.counts()
  return {
    cpuSeconds,
    memoryBytes,
    memoryLimitBytes: limits.memoryBytes,
    diskBytes: usedBytes,
    diskQuotaBytes: disk.bytes,
    processes: Math.max(0, tasks - ownTasks),
    networkReceivedBytes: counts?.receivedBytes ?? 0,
    networkSentBytes: counts?.sentBytes ?? 0,
    network: counts?.uses ?? [],
  }
}
