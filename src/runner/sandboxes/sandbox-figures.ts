import type { SandboxFigures, SandboxSpec } from '../../base/sandbox.ts'
import { usageOf } from '../../storage/filesystems.ts'
import type { SandboxParts } from './sandbox-parts.ts'

/** The agent. */
const agentTasks = 1

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
    processes: Math.max(0, tasks - parts.slot.ownTasks - agentTasks),
    networkReceivedBytes: counts?.receivedBytes ?? 0,
    networkSentBytes: counts?.sentBytes ?? 0,
    network: counts?.uses ?? [],
  }
}
