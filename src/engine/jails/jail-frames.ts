import type { Limits } from '../../base/run.ts'
import { type DockMounts, encodeBegin, encodeBytes, encodePrepare, toGuest } from '../slots/guest-channel.ts'
import { creditWindowBytes, pictureWindowBytes } from '../slots/run-slot.ts'
import type { NetworkOfJail } from './jail-network.ts'
import { type Command, home } from './languages.ts'
import type { PrewarmedJail } from './prewarmed-jail.ts'

/** One program for a jail. */
export interface JailRequest extends Command, DockMounts {
  env: Readonly<Record<string, string>>
  code: Uint8Array
  /** Absent: empty. Needs a `codeFile`, since otherwise standard input carries the code. */
  stdin: Uint8Array | undefined
  limits: Limits
  /** Name of the copy of the program in the home, from which it is started. Absent without one. */
  homeCodeFile?: string | undefined
  /** That it trusts in place of those of its image, in PEM. */
  certificates?: string | undefined
  /** Absent: it has none. */
  network?: NetworkOfJail | undefined
}

/** What begins a run in a jail that waits. */
export function beginFramesOf(jail: PrewarmedJail, { env, code, stdin, dock, volumes }: JailRequest): Buffer[] {
  const stdinBytes = stdin?.length ?? 0
  return [
    encodeBegin(jail.number, { env: jail.variablesOf(env), codeBytes: code.length, stdinBytes, dock, volumes }),
    ...encodeBytes(toGuest.code, jail.number, code),
    ...encodeBytes(toGuest.stdin, jail.number, stdin ?? new Uint8Array()),
  ]
}

/** What makes a jail for a run, and begins it. */
export function framesOf(number: number, request: JailRequest, shownCpus: number): Buffer[] {
  const { argv, codeFile, homeCodeFile, certificates, env, ownEnv, code, dock, volumes, limits } = request
  const stdin = request.stdin ?? (request.hasInputPipe ? new Uint8Array() : undefined)
  if (stdin && codeFile === undefined) throw new RangeError('standard input cannot carry both the code and an input')
  return [
    encodePrepare(number, {
      ...limits,
      argv,
      env: { ...env, ...ownEnv },
      home,
      ...(codeFile === undefined ? {} : { codeFile }),
      homeCodeFile,
      certificates,
      shownCpus,
      codeBytes: code.length,
      ...(stdin === undefined ? {} : { stdinBytes: stdin.length }),
      creditBytes: creditWindowBytes,
      pictureCreditBytes: pictureWindowBytes,
      dock,
      volumes,
    }),
    ...encodeBytes(toGuest.code, number, code),
    ...encodeBytes(toGuest.stdin, number, stdin ?? new Uint8Array()),
  ]
}
