import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { OutputPace } from '../../base/output-pace.ts'
import type { Language } from '../../base/run.ts'
import type { SandboxRow } from '../../store/sandbox-rows.ts'
import { checkVariables } from '../access/variables.ts'
import type { Caller } from '../caller.ts'
import { codeLimitBytes } from '../runs/request.ts'
import { checkCwd, checkTimeout } from './commands.ts'
import { displayBytes, HeldDisplays } from './held-displays.ts'
import type { CallEvent, Context, KernelLanguage, Kernels, Rewound } from './kernels/calls.ts'
import type { SandboxLifecycle } from './lifecycle.ts'
import type { SandboxRef } from './names.ts'
import { type OpenSandbox, openSandbox, withSandbox } from './open-sandbox.ts'
import { checkInput } from './run-command.ts'

/** The capability that each operation requires. */
export const sandboxCodeNeeds = {
  run: 'sandboxes.execute',
  contexts: 'sandboxes.execute',
  createContext: 'sandboxes.execute',
  restartContext: 'sandboxes.execute',
  removeContext: 'sandboxes.execute',
  interrupt: 'sandboxes.execute',
  rewind: 'sandboxes.execute',
} as const

/** Code to run in a context of a sandbox, which keeps its variables for the next call. */
export interface CodeRequest {
  language: Language
  code: string
  /** ID of a context; absent: the default one of the language. */
  context?: string | undefined
  stdin?: Uint8Array | undefined
  env?: Readonly<Record<string, unknown>> | undefined
  /** Absent: the default of the profile. */
  timeoutMs?: number | undefined
}

/** A further context. */
export interface NewContext {
  language: KernelLanguage
  cwd?: string | undefined
  /** Number of calls that can be undone. */
  rewind?: number | undefined
  /** Whether the files of the sandbox can go back as well. */
  rewindFiles?: boolean | undefined
}

/** Calls that one rewind undoes at most. */
const rewindMax = 1_000

/** Stateful code in sandboxes. */
export class SandboxCode {
  readonly #lifecycle: SandboxLifecycle
  readonly #kernels: Kernels
  readonly #displays = new HeldDisplays()
  readonly #pace = new OutputPace()

  constructor(lifecycle: SandboxLifecycle, kernels: Kernels) {
    this.#lifecycle = lifecycle
    this.#kernels = kernels
  }

  /**
   * Runs code in a context. Leaving the iteration early, or the signal, interrupts it.
   * @throws Refusal sandbox_unknown, sandbox_not_running, code_empty, code_too_large, language_unavailable, context_unknown,
   * timeout_too_long, before the first event.
   */
  async run(
    caller: Caller,
    ref: SandboxRef,
    request: CodeRequest,
    signal: AbortSignal,
  ): Promise<AsyncGenerator<CallEvent, void, undefined>> {
    const { language, code, context, stdin, env, timeoutMs = caller.profile.timeoutDefaultMs } = request
    checkCode(caller, language, code)
    checkTimeout(caller, timeoutMs)
    checkInput(stdin)
    const call = {
      ...{ language, code, timeoutMs },
      ...(context !== undefined && { context }),
      ...(stdin && { stdin }),
      ...(env && { env: checkVariables(env) }),
    }
    const sandbox = await openSandbox(this.#lifecycle, caller, ref)
    const events = this.#kernels.run(sandbox.row.id, call, signal)
    const slowed = this.#pace.slow(events, caller.orgId, 2 * caller.profile.limits.outputSoftBytes)
    return this.#running(caller, sandbox, slowed, language)
  }

  /** Lists the contexts. */
  contexts(caller: Caller, ref: SandboxRef): Promise<Context[]> {
    return this.#with(caller, ref, ({ id }) => this.#kernels.list(id))
  }

  /**
   * Starts a further context.
   * @param options `rewind`: number of calls that can be undone, for Python only; `rewindFiles`: with the files.
   * @throws Refusal contexts_full, language_unavailable, invalid_argument.
   */
  createContext(caller: Caller, ref: SandboxRef, { language, cwd, rewind, rewindFiles }: NewContext): Promise<Context> {
    if (cwd !== undefined) checkCwd(cwd)
    if (rewind && language !== 'python')
      throw new Refusal('invalid_argument', { field: 'rewind', problem: 'is possible for contexts of Python only' })
    if (!caller.profile.languages.includes(language)) throw unavailable(caller, language)
    if (rewindFiles && !rewind)
      throw new Refusal('invalid_argument', { field: 'rewind_files', problem: 'needs rewind' })
    const options = {
      language,
      ...(cwd !== undefined && { cwd }),
      ...(rewind !== undefined && { rewind }),
      ...(rewindFiles && { files: true }),
    }
    return this.#with(caller, ref, ({ id }) => this.#kernels.create(id, options))
  }

  /** Ends the interpreter of a context; the next call starts a new one. @throws Refusal context_unknown. */
  restartContext(caller: Caller, ref: SandboxRef, context: string): Promise<void> {
    return this.#with(caller, ref, ({ id }) => this.#kernels.restart(id, context))
  }

  /** Ends a context. @throws Refusal context_unknown. */
  removeContext(caller: Caller, ref: SandboxRef, context: string): Promise<void> {
    return this.#with(caller, ref, async ({ id }) => {
      if (!(await this.#kernels.remove(id, context))) throw new Refusal('context_unknown', { context })
    })
  }

  /** Interrupts the call that runs in a context. @returns whether there was one. @throws Refusal context_unknown. */
  interrupt(caller: Caller, ref: SandboxRef, context: string): Promise<boolean> {
    return this.#with(caller, ref, ({ id }) => this.#kernels.interrupt(id, context))
  }

  /**
   * Puts a context back into the state before its last calls.
   * @param files whether the disk goes back as well.
   * @throws Refusal rewind_unavailable, context_unknown, invalid_argument.
   */
  rewind(
    caller: Caller,
    ref: SandboxRef,
    { context, calls, files }: { context?: string | undefined; calls: number; files?: boolean | undefined },
  ): Promise<Rewound> {
    if (!Number.isInteger(calls) || calls < 1 || calls > rewindMax) {
      throw new Refusal('invalid_argument', {
        field: 'calls',
        problem: `must be a whole number from 1 to ${rewindMax}`,
      })
    }
    const options = { calls, ...(context !== undefined && { context }), ...(files && { files }) }
    return this.#with(caller, ref, ({ id }) => this.#kernels.rewind(id, options))
  }

  #with<Result>(caller: Caller, ref: SandboxRef, work: (row: SandboxRow) => Promise<Result>): Promise<Result> {
    return withSandbox(this.#lifecycle, caller, ref, ({ row }) => work(row))
  }

  /** Reads the first event, so that refusals come before the answer begins. */
  async #running(
    caller: Caller,
    sandbox: OpenSandbox,
    events: AsyncGenerator<CallEvent, void, undefined>,
    language: Language,
  ): Promise<AsyncGenerator<CallEvent, void, undefined>> {
    try {
      const first = await this.#lifecycle.asked(sandbox.row, () => events.next())
      return this.#passOn(caller, sandbox, first, events, language)
    } catch (error) {
      sandbox.close()
      throw error
    }
  }

  async *#passOn(
    caller: Caller,
    { row, close }: OpenSandbox,
    first: IteratorResult<CallEvent, void>,
    events: AsyncGenerator<CallEvent, void, undefined>,
    language: Language,
  ): AsyncGenerator<CallEvent, void, undefined> {
    let heldBytes = 0
    try {
      for (let next = first; !next.done; next = await events.next()) {
        if (next.value.kind === 'display') {
          const bytes = displayBytes(next.value.data)
          if (!this.#displays.hold(row.orgId, bytes)) continue
          heldBytes += bytes
        }
        if (next.value.kind === 'ended') await this.#audit(caller, row, language, next.value)
        yield next.value
      }
    } finally {
      this.#displays.release(row.orgId, heldBytes)
      await events.return()
      close()
    }
  }

  async #audit(
    { keyId }: Caller,
    { id, orgId, namespace, name }: SandboxRow,
    language: Language,
    { ending, state, durationMs }: Extract<CallEvent, { kind: 'ended' }>,
  ): Promise<void> {
    this.#lifecycle.deps.metrics.sandbox('code')
    await this.#lifecycle.deps.store.audit.append({
      at: timestamp(),
      orgId,
      actor: keyId,
      action: 'sandbox.code',
      target: id,
      details: { namespace, name, language, ending: ending.kind, state, duration_ms: Math.round(durationMs) },
      personal: null,
      subject: null,
    })
  }
}

function checkCode(caller: Caller, language: Language, code: string): void {
  const bytes = Buffer.byteLength(code)
  if (bytes === 0) throw new Refusal('code_empty', { limitBytes: codeLimitBytes })
  if (bytes > codeLimitBytes) throw new Refusal('code_too_large', { bytes, limitBytes: codeLimitBytes })
  if (!code.isWellFormed() || code.includes('\0'))
    throw new Refusal('invalid_argument', { field: 'code', problem: 'must be text without NUL and lone surrogates' })
  if (!caller.profile.languages.includes(language)) throw unavailable(caller, language)
}

const unavailable = ({ profile }: Caller, language: string): Refusal =>
  new Refusal('language_unavailable', { language, offered: profile.languages.join(', ') })
