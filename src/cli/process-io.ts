import type { Readable, Writable } from 'node:stream'

/** An output of this process, which may be a terminal. */
export type OutputStream = Writable & {
  isTTY?: boolean | undefined
  columns?: number | undefined
  rows?: number | undefined
}

/** What a command sees of its process. Only `main.ts` creates one from the real process. */
export interface ProcessIo {
  stdin: Readable & { isTTY?: boolean | undefined; setRawMode?(isRaw: boolean): unknown }
  stdout: OutputStream
  stderr: OutputStream
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
  /** The channel to a process of this program that started it with one. */
  parent?: ParentChannel | undefined
}

/** Messages of Node.js between two processes, with sockets: https://nodejs.org/api/child_process.html */
export interface ParentChannel {
  send(message: object): void
  receive(take: (message: unknown, handle: unknown) => void): void
  /** Resolves when the other process has ended. */
  readonly gone: Promise<void>
}

/** Exit codes as sysexits.h has them: https://man.openbsd.org/sysexits */
export const exitCodes = {
  ok: 0,
  /** The arguments are wrong. */
  usage: 64,
  /** A local file is missing or cannot be read. */
  noInput: 66,
  /** No server answers, or it cannot run anything now. */
  unavailable: 69,
  /** An internal error, or a request that the server refused. */
  software: 70,
  /** A local file cannot be written. */
  cannotCreate: 73,
  /** The disk is full, read-only or broken. */
  ioError: 74,
  /** The server is busy or a limit is reached; the same command can succeed later. */
  temporary: 75,
  /** The key is missing, invalid, or not permitted to do this. */
  noPermission: 77,
  /** The product cannot start with this configuration or on this machine. */
  config: 78,
} as const

const signalNumbers: Readonly<Record<string, number>> = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 }

/** The exit code of a command that a signal interrupted: 130 for Ctrl-C. */
export const interruptedCode = (stop: AbortSignal): number => 128 + (signalNumbers[String(stop.reason)] ?? 2)
