import { monotonicMs, timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { OutputPace } from '../../base/output-pace.ts'
import type { ProcessEnding, ProcessEvent, ProcessSpec } from '../../base/sandbox.ts'
import type { SandboxRow } from '../../store/sandbox-rows.ts'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import { type CommandOutput, CommandOutputFold } from './command-output.ts'
import { ignoreRefusal, sigkill } from './commands.ts'
import type { OpenSandbox } from './open-sandbox.ts'

export interface CommandResult extends CommandOutput {
  ending: ProcessEnding
  durationMs: number
  /** The command was killed because it wrote more than the profile allows. */
  outputLimitBytes?: number
}

const pace = new OutputPace()

/**
 * Executes a command, waits for its end and forgets it. It is killed when the signal aborts.
 * @param stdin all of its input; absent: at end of file.
 */
export async function runCommand(
  caller: Caller,
  sandbox: OpenSandbox,
  spec: ProcessSpec,
  stdin: Uint8Array | undefined,
  signal: AbortSignal,
): Promise<CommandResult> {
  const startedMs = monotonicMs()
  const { row, processes } = sandbox
  const { status, events } = await processes.startFollowed(row.id, spec)
  const { processId, ending } = status
  const kill = () => void processes.signal(row.id, processId, sigkill, 'group').catch(ignoreRefusal)
  try {
    const input = stdin === undefined || ending ? undefined : feed(sandbox, processId, stdin)
    const result = await collect(caller, events, kill, signal)
    await input
    return { ...result, durationMs: Math.round(monotonicMs() - startedMs) }
  } finally {
    // Not awaited: the result does not depend on it.
    processes.forget(row.id, processId).catch(ignoreRefusal)
  }
}

async function collect(caller: Caller, events: AsyncIterable<ProcessEvent>, kill: () => void, signal: AbortSignal) {
  const { outputSoftBytes, outputHardBytes } = caller.profile.limits
  const fold = new CommandOutputFold(outputSoftBytes * 2)
  let isOver = false
  if (signal.aborted) kill()
  else signal.addEventListener('abort', kill, { once: true })
  try {
    for await (const event of pace.slow(events, caller.orgId, outputSoftBytes * 2)) {
      if (event.kind === 'ended')
        return { ...fold.end(), ending: event.ending, ...(isOver && { outputLimitBytes: outputHardBytes }) }
      fold.add(event)
      if (fold.totalBytes > outputHardBytes && !isOver) {
        isOver = true
        kill()
      }
    }
  } finally {
    signal.removeEventListener('abort', kill)
  }
  // The runner was lost, and the sandbox with it.
  return { ...fold.end(), ending: { kind: 'sandbox_ended' } as const }
}

async function feed({ row, processes }: OpenSandbox, processId: number, stdin: Uint8Array): Promise<void> {
  try {
    if (stdin.length > 0) await processes.write(row.id, processId, 'stdin', stdin)
    await processes.close(row.id, processId, 'stdin')
  } catch (error) {
    // A program can end before it has read its input.
    ignoreRefusal(error)
  }
}

/** Writes the audit line of a command, or of a background process that was started. */
export async function auditCommand(
  store: Store,
  { keyId }: Caller,
  { id, orgId, namespace, name }: SandboxRow,
  argv: readonly string[],
  how: { background: true; ending: ProcessEnding | undefined } | { ending: ProcessEnding; durationMs: number },
): Promise<void> {
  const { ending } = how
  await store.audit.append({
    at: timestamp(),
    orgId,
    actor: keyId,
    action: 'sandbox.command',
    target: id,
    details: {
      ...{ namespace, name, program: argv[0]?.slice(0, 128), arguments: argv.length - 1 },
      ...(ending ? { ending, duration_ms: 'durationMs' in how ? how.durationMs : 0 } : { background: true }),
    },
    personal: null,
    subject: null,
  })
}

/** Input that one call can write. */
const inputMaxBytes = 1024 * 1024

/** @throws Refusal invalid_argument. */
export function checkInput(bytes: Uint8Array | undefined): void {
  if (bytes === undefined || bytes.length <= inputMaxBytes) return
  const problem = `is ${bytes.length} bytes; the maximum is ${inputMaxBytes}. Write it in pieces, or to a file`
  throw new Refusal('invalid_argument', { field: 'stdin', problem })
}
