import { once } from 'node:events'
import { Refusal } from '../../base/errors.ts'
import type { ProcessEnding } from '../../base/sandbox.ts'
import type { SandboxProcesses } from '../../runner/protocol/sandboxes.ts'
import type { AgentLink } from './agent.ts'
import { agentCommand } from './agent-program.ts'

/** Replies that wait for this process: the largest reply must fit. */
const keepBytes = 8 * 1024 * 1024
/** Bytes of one message to the runner. */
const pieceBytes = 256 * 1024
const sigkill = 9
/** Time in which an agent ends by itself. */
const endMs = 2_000

/** Starts agents as processes of sandboxes. */
export class SandboxAgents {
  /** Agents that this process has started, by sandbox. */
  readonly #own = new Map<string, Set<number>>()

  /**
   * Starts an agent.
   * @param directory of the workspace; absent: the working directory of the sandbox.
   * @throws Refusal workspace_failed, and those of the runner.
   */
  async start(processes: SandboxProcesses, sandboxId: string, directory: string | undefined): Promise<AgentLink> {
    const own = this.#own.get(sandboxId) ?? new Set()
    this.#own.set(sandboxId, own)
    await this.#endStale(processes, sandboxId, own)
    const spec = {
      argv: agentCommand('.'),
      channel: true,
      keepBytes,
      ...(directory !== undefined && { cwd: directory }),
    }
    const { processId, ending } = await processes.start(sandboxId, spec)
    if (ending) throw new Refusal('workspace_failed', { reason: notStarted(ending) })
    own.add(processId)
    return linkTo(processes, sandboxId, processId, () => {
      own.delete(processId)
      if (own.size === 0 && this.#own.get(sandboxId) === own) this.#own.delete(sandboxId)
    })
  }

  /** Ends agents that an earlier process of the server has started: their channels cannot be taken over. */
  async #endStale(processes: SandboxProcesses, sandboxId: string, own: ReadonlySet<number>): Promise<void> {
    const command = agentCommand('.').join('\0')
    for (const { processId, argv, ending } of await processes.list(sandboxId)) {
      if (ending === undefined && !own.has(processId) && argv.join('\0') === command) {
        await end(processes, sandboxId, processId)
      }
    }
  }
}

function notStarted(ending: ProcessEnding): string {
  switch (ending.kind) {
    case 'not_started':
      return `python3 could not be started: ${ending.reason}`
    case 'exited':
    case 'signaled':
    case 'timed_out':
    case 'out_of_memory':
    case 'sandbox_ended':
      return 'it ended at once'
  }
}

function linkTo(processes: SandboxProcesses, sandboxId: string, processId: number, ended: () => void): AgentLink {
  return {
    received: receive(processes, sandboxId, processId, ended),
    write: async (bytes) => {
      for (let at = 0; at < bytes.length; at += pieceBytes) {
        await processes.write(sandboxId, processId, 'channel', bytes.subarray(at, at + pieceBytes))
      }
    },
    close: () => end(processes, sandboxId, processId),
  }
}

async function* receive(
  processes: SandboxProcesses,
  sandboxId: string,
  processId: number,
  ended: () => void,
): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    for await (const event of processes.attach(sandboxId, processId, 0)) {
      if (event.kind === 'ended') break
      if (event.stream !== 'channel') continue
      if (event.kind === 'gap') throw new Refusal('workspace_failed', { reason: 'a part of its replies was lost' })
      yield event.bytes
    }
  } finally {
    ended()
    await processes.forget(sandboxId, processId).catch(ignoreRefusal)
  }
}

/** The agent ends with its channel and stops what it has started; one that does not is killed. */
async function end(processes: SandboxProcesses, sandboxId: string, processId: number): Promise<void> {
  await processes.close(sandboxId, processId, 'channel').catch(ignoreRefusal)
  const isOver = AbortSignal.timeout(endMs)
  await Promise.race([waitForEnd(processes, sandboxId, processId), once(isOver, 'abort')])
  await processes.signal(sandboxId, processId, sigkill, 'group').catch(ignoreRefusal)
}

async function waitForEnd(processes: SandboxProcesses, sandboxId: string, processId: number): Promise<void> {
  try {
    for await (const _ of processes.attach(sandboxId, processId, 0));
  } catch (error) {
    ignoreRefusal(error)
  }
}

/** The process or its sandbox has ended meanwhile. */
function ignoreRefusal(error: unknown): void {
  if (!(error instanceof Refusal)) throw error
}
