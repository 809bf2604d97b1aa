import { Refusal } from '../../base/errors.ts'
import type { ProcessEvent, ProcessStatus, TerminalSize } from '../../base/sandbox.ts'
import type { Caller } from '../caller.ts'
import {
  type CommandRequest,
  checkTerminal,
  type ProcessRequest,
  sigkill,
  toProcessSpec,
  toSignal,
} from './commands.ts'
import type { SandboxLifecycle } from './lifecycle.ts'
import type { SandboxRef } from './names.ts'
import { type OpenSandbox, openSandbox, withSandbox } from './open-sandbox.ts'
import { awaitEnd, followProcess, type ProcessPoll, pollProcess, statusOf, waitForProcess } from './process-output.ts'
import { auditCommand, type CommandResult, checkInput, runCommand } from './run-command.ts'

/** The capability that each operation requires. */
export const sandboxProcessNeeds = {
  run: 'sandboxes.execute',
  start: 'sandboxes.execute',
  list: 'sandboxes.execute',
  get: 'sandboxes.execute',
  poll: 'sandboxes.execute',
  follow: 'sandboxes.execute',
  wait: 'sandboxes.execute',
  write: 'sandboxes.execute',
  closeStdin: 'sandboxes.execute',
  signal: 'sandboxes.execute',
  resize: 'sandboxes.execute',
  forget: 'sandboxes.execute',
} as const

/** Commands and background processes in sandboxes. Processes belong to their sandbox, not to the key that started them. */
export class SandboxProcesses {
  readonly #lifecycle: SandboxLifecycle

  constructor(lifecycle: SandboxLifecycle) {
    this.#lifecycle = lifecycle
  }

  /**
   * Executes a command and waits for its end. It is killed when the signal aborts.
   * @throws Refusal sandbox_unknown, sandbox_not_running, invalid_argument, command_is_shell, timeout_too_long.
   */
  async run(
    caller: Caller,
    ref: SandboxRef,
    request: CommandRequest & { stdin?: Uint8Array | undefined },
    signal: AbortSignal,
  ): Promise<CommandResult> {
    const { stdin, timeoutMs = caller.profile.timeoutDefaultMs, ...command } = request
    checkInput(stdin)
    const spec = toProcessSpec(caller, { ...command, timeoutMs, stdin: stdin !== undefined })
    return this.#with(caller, ref, async (sandbox) => {
      const result = await runCommand(caller, sandbox, spec, stdin, signal)
      const { store, metrics } = this.#lifecycle.deps
      metrics.sandbox('command')
      await auditCommand(store, caller, sandbox.row, spec.argv, result)
      return result
    })
  }

  /** Starts a background process. @throws Refusal as `run`. */
  start(caller: Caller, ref: SandboxRef, request: ProcessRequest): Promise<ProcessStatus> {
    const spec = toProcessSpec(caller, request)
    return this.#with(caller, ref, async ({ row, processes }) => {
      const status = await processes.start(row.id, spec)
      const how = { background: true, ending: status.ending } as const
      await auditCommand(this.#lifecycle.deps.store, caller, row, spec.argv, how)
      return status
    })
  }

  /** Lists the processes that were started by calls, ended ones included. */
  list(caller: Caller, ref: SandboxRef): Promise<ProcessStatus[]> {
    return this.#with(caller, ref, ({ row, processes }) => processes.list(row.id))
  }

  /** @throws Refusal process_unknown. */
  get(caller: Caller, ref: SandboxRef, processId: number): Promise<ProcessStatus> {
    return this.#with(caller, ref, (sandbox) => statusOf(sandbox, processId))
  }

  /**
   * Returns output after a cursor. Waits until there is some or the process ends.
   * @param asked `cursor`: 0 for everything that is kept; one beyond the end stands for the end. `waitMs`: 0 returns
   * immediately.
   * @throws Refusal process_unknown.
   */
  poll(
    caller: Caller,
    ref: SandboxRef,
    processId: number,
    asked: { cursor: number; waitMs: number; signal: AbortSignal },
  ): Promise<ProcessPoll> {
    return this.#with(caller, ref, (sandbox) => pollProcess(sandbox, processId, asked))
  }

  /**
   * Follows the output of a process to its end.
   * @param afterSeq as the cursor of `poll`. The last event is always the ending.
   * @throws Refusal process_unknown, before the first event.
   */
  async follow(
    caller: Caller,
    ref: SandboxRef,
    processId: number,
    afterSeq: number,
    signal: AbortSignal,
  ): Promise<AsyncGenerator<ProcessEvent, void, undefined>> {
    const sandbox = await openSandbox(this.#lifecycle, caller, ref)
    try {
      await this.#lifecycle.asked(sandbox.row, () => statusOf(sandbox, processId))
    } catch (error) {
      sandbox.close()
      throw error
    }
    return followProcess(sandbox, processId, afterSeq, signal)
  }

  /** Waits until a process has ended. @returns its status, which has no ending if the time was too short. */
  wait(
    caller: Caller,
    ref: SandboxRef,
    processId: number,
    asked: { waitMs: number; signal: AbortSignal },
  ): Promise<ProcessStatus> {
    return this.#with(caller, ref, (sandbox) => waitForProcess(sandbox, processId, asked))
  }

  /**
   * Writes to standard input. Waits while the process does not read, until `signal` ends that.
   * @throws Refusal process_unknown, input_full.
   */
  write(caller: Caller, ref: SandboxRef, processId: number, bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    checkInput(bytes)
    return this.#with(caller, ref, ({ row, processes }) =>
      processes.write(row.id, known(processId), 'stdin', bytes, signal),
    )
  }

  closeStdin(caller: Caller, ref: SandboxRef, processId: number): Promise<void> {
    return this.#with(caller, ref, ({ row, processes }) => processes.close(row.id, known(processId), 'stdin'))
  }

  /** Sends a signal to a process and its process group. @throws Refusal process_unknown, invalid_argument. */
  signal(caller: Caller, ref: SandboxRef, processId: number, signal: string | number): Promise<void> {
    const number = toSignal(signal)
    return this.#with(caller, ref, ({ row, processes }) => processes.signal(row.id, known(processId), number, 'group'))
  }

  /** Changes the size of the terminal of a process. @throws Refusal process_unknown, invalid_argument. */
  resize(caller: Caller, ref: SandboxRef, processId: number, size: TerminalSize): Promise<void> {
    checkTerminal(size)
    return this.#with(caller, ref, ({ row, processes }) => processes.resize(row.id, known(processId), size))
  }

  /** Forgets an ended process with its output; one that runs is killed. @throws Refusal process_unknown. */
  forget(caller: Caller, ref: SandboxRef, processId: number): Promise<void> {
    return this.#with(caller, ref, async (sandbox) => {
      const { row, processes } = sandbox
      const { ending } = await statusOf(sandbox, processId)
      if (ending === undefined) {
        await processes.signal(row.id, processId, sigkill, 'group')
        await awaitEnd(sandbox, processId)
      }
      await processes.forget(row.id, processId)
    })
  }

  #with<Result>(caller: Caller, ref: SandboxRef, work: (sandbox: OpenSandbox) => Promise<Result>): Promise<Result> {
    return withSandbox(this.#lifecycle, caller, ref, work)
  }
}

/** @throws Refusal process_unknown for what is no number of a process. */
function known(processId: number): number {
  if (Number.isSafeInteger(processId)) return processId
  throw new Refusal('process_unknown', { process: String(processId) })
}
