import { Refusal } from '../../../base/errors.ts'
import type { ProcessEnding, ProcessEvent } from '../../../base/sandbox.ts'
import type { SandboxProcesses } from '../../../runner/protocol/sandboxes.ts'
import type { ProcessErrors } from './program-errors.ts'

const sigkill = 9
/** Time until an installation must have ended. */
const installMaxMs = 10 * 60_000

/** A process of an upstream, as the gateway uses it. */
export interface UpstreamProcess {
  /** Standard output, in the order in which it was written. It ends when the process has ended. Can be read once. */
  readonly output: AsyncIterable<Uint8Array>
  /** Why it ended; `undefined` while it runs. */
  readonly ending: string | undefined
  /** Resolves when the process can read the bytes. @throws Refusal if it has ended. */
  write(bytes: Uint8Array): Promise<void>
  /** Counts a line of the output that is no message. */
  countSkippedLine(): void
  /** Kills it with its process group. */
  kill(): Promise<void>
}

/** What of the processes of a sandbox is used here. */
export type ProgramProcesses = Pick<SandboxProcesses, 'startFollowed' | 'write' | 'signal' | 'forget'>

/** A process in the sandbox of an upstream. */
export class ProgramProcess implements UpstreamProcess {
  readonly output: AsyncIterable<Uint8Array>
  readonly #processes: ProgramProcesses
  readonly #sandboxId: string
  readonly #processId: number
  #ending: string | undefined
  #isKilled = false
  /** Called once, when it has ended or is killed. Returns what to report about the end. */
  onEnd: (ending: ProcessEnding | undefined, isKilled: boolean) => string = problemOf
  countSkippedLine: () => void = () => {}

  constructor(
    processes: ProgramProcesses,
    { sandboxId, processId }: { sandboxId: string; processId: number },
    events: AsyncIterableIterator<ProcessEvent, void, undefined>,
    stderr: Pick<ProcessErrors, 'add'>,
  ) {
    this.#processes = processes
    this.#sandboxId = sandboxId
    this.#processId = processId
    this.output = this.#read(events, stderr)
  }

  get ending(): string | undefined {
    return this.#ending
  }

  write(bytes: Uint8Array): Promise<void> {
    return this.#processes.write(this.#sandboxId, this.#processId, 'stdin', bytes)
  }

  async kill(): Promise<void> {
    this.#isKilled = true
    this.#ended(undefined)
    await this.#processes.signal(this.#sandboxId, this.#processId, sigkill, 'group').catch(ignoreRefusal)
  }

  async *#read(
    events: AsyncIterableIterator<ProcessEvent, void, undefined>,
    stderr: Pick<ProcessErrors, 'add'>,
  ): AsyncGenerator<Uint8Array, void, undefined> {
    let ending: ProcessEnding | undefined
    try {
      for await (const event of events) {
        if (event.kind === 'ended') ending = event.ending
        else if (event.kind !== 'output') continue
        else if (event.stream === 'stdout') yield event.bytes
        else stderr.add(event.bytes)
      }
    } catch (error) {
      // The runner was lost, with the sandbox.
      if (!(error instanceof Refusal)) throw error
    } finally {
      this.#ended(ending)
      // Its output would be kept as long as the sandbox.
      if (ending) this.#processes.forget(this.#sandboxId, this.#processId).catch(() => {})
    }
  }

  #ended(ending: ProcessEnding | undefined): void {
    if (this.#ending === undefined) this.#ending = this.onEnd(ending, this.#isKilled)
  }
}

/**
 * Executes the installation of a program.
 * @param said gets its output.
 * @param timeoutMs within which it must end.
 * @returns how it ended.
 */
export async function runInstallation(
  processes: ProgramProcesses,
  sandboxId: string,
  argv: readonly string[],
  said: Pick<ProcessErrors, 'add'>,
  timeoutMs = installMaxMs,
): Promise<ProcessEnding | undefined> {
  const spec = { argv, env: { npm_config_update_notifier: 'false' }, timeoutMs }
  const { status, events } = await processes.startFollowed(sandboxId, spec)
  let { ending } = status
  for await (const event of events) {
    if (event.kind === 'output') said.add(event.bytes)
    if (event.kind === 'ended') ending = event.ending
  }
  return ending
}

/** Returns what happened to a process, as the predicate of a sentence. */
export function problemOf(ending: ProcessEnding | undefined): string {
  switch (ending?.kind) {
    case 'exited':
      return `exited with code ${ending.code}`
    case 'signaled':
      return `was ended by ${ending.signal}`
    case 'timed_out':
      return `did not end within ${ending.limitMs / 1_000} seconds`
    case 'out_of_memory':
      return `used all of its memory of ${ending.limitBytes} bytes`
    case 'not_started':
      return `cannot be executed: ${withoutStop(ending.reason)}`
    case 'sandbox_ended':
    case undefined:
      return 'was stopped'
  }
}

export function ignoreRefusal(error: unknown): void {
  if (!(error instanceof Refusal)) throw error
}

export const withoutStop = (sentence: string): string => sentence.replace(/\.$/, '')
