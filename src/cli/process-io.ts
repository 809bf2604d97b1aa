import type { Readable, Writable } from 'node:stream'

/** What a command sees of its process. Only `main.ts` creates one from the real process. */
export interface ProcessIo {
  stdin: Readable
  stdout: Writable & { isTTY?: boolean | undefined }
  stderr: Writable & { isTTY?: boolean | undefined }
  env: Readonly<Record<string, string | undefined>>
  /** How to start this program again: interpreter, its options and the entry file; a command and its arguments follow. */
  self: readonly [string, ...string[]]
  /** Aborts when the process receives a termination signal, whose name is the reason. */
  stop: AbortSignal
  /**
   * Handles every further termination signal, which otherwise ends the process at once: for processes that leave something
   * behind on the machine then.
   * @param handle receives the conventional exit code, 128 and the number of the signal.
   */
  onRepeatedSignal(handle: (exitCode: number) => void): void
}

/** Exit codes as sysexits.h has them: https://man.openbsd.org/sysexits */
export const exitCodes = {
  ok: 0,
  /** The arguments are wrong. */
  usage: 64,
  /** An internal error. */
  software: 70,
  /** The product cannot start with this configuration or on this machine. */
  config: 78,
} as const
