import type { Readable, Writable } from 'node:stream'

/** All that a command sees of its process. Only `main.ts` makes one from the real thing. */
export interface Io {
  stdin: Readable
  stdout: Writable & { isTTY?: boolean | undefined }
  stderr: Writable & { isTTY?: boolean | undefined }
  env: Readonly<Record<string, string | undefined>>
  /** Starts this program again, a command and its words appended: interpreter, its options, entry file. */
  self: readonly [string, ...string[]]
  /** Aborts when the process is asked to end; the reason is the signal's name. A second request ends it at once. */
  stop: AbortSignal
}

/** The words of `glovebox run`, as they were given. */
export interface RunArguments {
  /** `-`: the source text comes from standard input. */
  file: string
  language?: string
  timeout?: string
  /** `NAME=value`, in order. */
  env: readonly string[]
  /** File whose content is the program's standard input. */
  stdin?: string
  url?: string
}

/** Exit codes as sysexits.h has them: https://man.openbsd.org/sysexits */
export const exitCodes = {
  ok: 0,
  /** The command line is wrong. */
  usage: 64,
  /** Our own failure. */
  software: 70,
  /** The product cannot start as configured, or on this machine. */
  config: 78,
} as const
