/** Runs upstream programs for a command, on the runner of the server. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Refusal } from '../../base/errors.ts'
import type { Instance } from '../../base/instance.ts'
import type { SandboxSpec } from '../../base/sandbox.ts'
import type { Config } from '../../config.ts'
import { UpstreamPrograms } from '../../core/upstreams/programs/programs.ts'
import { packagesNetwork } from '../../network-settings.ts'
import { RunnerClient } from '../../runner/client/client.ts'
import type { RunnerSandboxes } from '../../runner/protocol/sandboxes.ts'
import type { Store } from '../../store/store.ts'

/** Time until a running server has accepted the connection. */
const connectMs = 5_000
const pollMs = 20

export interface CommandPrograms {
  programs: UpstreamPrograms
  close(): Promise<void>
}

/** Connects to the runner with the first program. A sandbox that the server already runs is used and left running. */
export function commandPrograms(
  { socketPath }: Instance,
  store: Store,
  { values, upstreamProgramMemoryBytes: memoryBytes, upstreamProgramDiskBytes: diskBytes }: Config,
): CommandPrograms {
  let client: RunnerClient | undefined
  const sandboxes = async (): Promise<RunnerSandboxes> => {
    client ??= new RunnerClient(socketPath, () => {})
    for (let waitedMs = 0; !client.readiness.ready; waitedMs += pollMs) {
      if (waitedMs >= connectMs) throw new Refusal('unavailable', { reason: 'the server is not running' })
      await sleep(pollMs)
    }
    return client.sandboxes
  }
  const ofServer = new Set<string>()
  const own = new Set<string>()
  /** Whether the server has processes in a sandbox, which both may have started at the same time. */
  const isUsed = async (sandboxId: string): Promise<boolean> => {
    const processes = await (await sandboxes()).processes.list(sandboxId).catch((error: unknown) => {
      if (error instanceof Refusal) return []
      throw error
    })
    return processes.some(({ processId, ending }) => !ending && !own.has(`${sandboxId} ${processId}`))
  }
  const programs = new UpstreamPrograms({
    ...{ store, packages: packagesNetwork(values) },
    // The server decides on the number; a command starts one at a time.
    limits: { max: 1, perOrg: 1, memoryBytes, diskBytes },
    mayStop: async (sandboxId) => !ofServer.has(sandboxId) && !(await isUsed(sandboxId)),
    runner: {
      async start(spec: SandboxSpec) {
        const runner = await sandboxes()
        const isRunning = (await runner.list()).some(({ sandboxId }) => sandboxId === spec.sandboxId)
        if (isRunning) ofServer.add(spec.sandboxId)
        else await runner.start(spec)
      },
      stop: async (...given) => (await sandboxes()).stop(...given),
      remove: async (...given) => (await sandboxes()).remove(...given),
      list: async () => (await sandboxes()).list(),
      processes: {
        async startFollowed(sandboxId, spec) {
          const started = await (await sandboxes()).processes.startFollowed(sandboxId, spec)
          own.add(`${sandboxId} ${started.status.processId}`)
          return started
        },
        write: async (...given) => (await sandboxes()).processes.write(...given),
        signal: async (...given) => (await sandboxes()).processes.signal(...given),
        forget: async (...given) => (await sandboxes()).processes.forget(...given),
      },
    },
  })
  return {
    programs,
    close: async () => {
      await programs.close()
      await client?.close()
    },
  }
}
