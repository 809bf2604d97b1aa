/**
 * The words of stateful code. A *context* is an interpreter in a sandbox that keeps its state between calls; the process
 * of a context is its *kernel*. Each language has one default context, whose id is the name of the language.
 */
import type { Language, Stream } from '../../../base/run.ts'
import type { ProcessEnding } from '../../../base/sandbox.ts'

/** Interpreters that keep state. TypeScript runs in the contexts of node, without its types. */
export const kernelLanguages = ['python', 'node', 'bash'] as const
export type KernelLanguage = (typeof kernelLanguages)[number]

export const kernelOf = (language: Language): KernelLanguage => (language === 'typescript' ? 'node' : language)

/** Code to run in a context. */
export interface Call {
  language: Language
  /** Id of a context of this language; absent: the default context of the language, which the first call creates. */
  context?: string
  code: string
  /** Standard input of this call; absent: at end of file. */
  stdin?: Uint8Array
  /** Variables of the environment during this call only. */
  env?: Readonly<Record<string, string>>
  /** Wall time of the code, without the time that it waits for earlier calls of its context. */
  timeoutMs: number
}

/** Representations of one value by media type. Text as it is, `application/json` as JSON text, binary types as bytes. */
export type Display = Readonly<Record<string, string | Uint8Array>>

/** How the code of a call ended. */
export type CallEnding =
  /** It ran to its end. `exitCode`: of the last command, for bash only. */
  | { kind: 'completed'; exitCode?: number }
  /** An exception that the code did not handle. The traceback contains only frames of the code and its libraries. */
  | { kind: 'raised'; name: string; message: string; traceback: string }
  /** The code called `exit`. */
  | { kind: 'exited'; code: number }
  | { kind: 'timed_out'; limitMs: number }
  /** The caller or another one interrupted it. */
  | { kind: 'interrupted' }
  /** The process of the kernel ended during the call: a crash, the memory limit, or the code ended it. */
  | { kind: 'kernel_ended'; ending: ProcessEnding }

/**
 * The state of the context after a call: `kept`; `lost`: the next call starts with an empty one; `restored`: the kernel was
 * killed, and a frozen copy took its place, so that the state is the one before the call.
 */
export type StateAfter = 'kept' | 'lost' | 'restored'

export interface CallEnded {
  kind: 'ended'
  ending: CallEnding
  state: StateAfter
  /** The state was lost after the previous call of this context, which this call did not cause; with the reason. */
  lostBefore?: string
  /** Counts the calls of the kernel from 1; 0 if it did not start. */
  count: number
  durationMs: number
}

/** What a call yields; `ended` is always the last event. */
export type CallEvent =
  | { kind: 'output'; stream: Stream; bytes: Uint8Array }
  /** Output that was dropped because it arrived faster than it was read. */
  | { kind: 'gap'; stream: Stream; bytes: number }
  /** `isResult`: the value of the last expression; otherwise what the code displayed, for example a figure. */
  | { kind: 'display'; data: Display; isResult: boolean }
  | CallEnded

export interface Context {
  id: string
  language: KernelLanguage
  /** Working directory in which it was started; absent: that of the sandbox. */
  cwd?: string
  state: 'idle' | 'busy' | 'not_started'
  /** Number of calls that can be rewound. */
  rewindable: number
  /** Whether files can be rewound as well. */
  keepsFiles: boolean
}

export interface Rewound {
  /** Number of calls that were undone. */
  calls: number
  /** What the code had started that could not be undone, for example `threads: 2`. */
  notRewound: readonly string[]
  /** Number of files and directories that were put back and removed, where files were rewound. */
  files?: { restored: number; removed: number }
}

/**
 * Contexts of sandboxes. Rights, the state of the sandbox and the size of the code are checked by the caller.
 * @throws Refusal context_unknown, contexts_full, context_language, context_busy, interpreter_missing, and those of the runner.
 */
export interface Kernels {
  /**
   * Runs code. Calls of one context run one after another in the order of `run`. Leaving the iteration early, or the
   * signal, interrupts the code and keeps the state where the language can.
   */
  run(sandboxId: string, call: Call, signal: AbortSignal): AsyncGenerator<CallEvent, void, undefined>
  list(sandboxId: string): Promise<Context[]>
  /**
   * Starts a further context with an id of its own. `rewind`: number of calls that can be rewound, for Python only; each
   * needs a frozen copy of the interpreter, and making it costs every call a fork. `files`: whether files can be rewound as
   * well, which costs every call a copy of the disk.
   */
  create(
    sandboxId: string,
    options: { language: KernelLanguage; cwd?: string; rewind?: number; files?: boolean },
  ): Promise<Context>
  /** Ends the kernel; the next call starts a new one in the same context. */
  restart(sandboxId: string, context: string): Promise<void>
  /** Ends the kernel and forgets the context. @returns whether it existed. */
  remove(sandboxId: string, context: string): Promise<boolean>
  /** Interrupts the call that runs in a context. @returns whether there was one. */
  interrupt(sandboxId: string, context: string): Promise<boolean>
  /**
   * Puts a kernel back into the state before its last calls.
   * @throws Refusal rewind_unavailable: there is no frozen copy from that time, or the kernel keeps none.
   */
  rewind(sandboxId: string, options: { context?: string; calls: number; files?: boolean }): Promise<Rewound>
  /** Forgets the contexts of a sandbox that was stopped. Its processes have ended with it. */
  forget(sandboxId: string): void
  /**
   * The kernels of a sandbox have ended with it, without a request: the next call of each context says so.
   * @param startedAtMs since when the sandbox ran: before this front, its contexts may not be known here.
   */
  lose(sandboxId: string, reason: string, startedAtMs: number): void
}
