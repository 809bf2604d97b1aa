import { constants } from 'node:os'
import { AsyncQueue } from '../../base/async-queue.ts'
import { Refusal } from '../../base/errors.ts'
import { whenResolved } from '../../base/when-resolved.ts'
import type { Spawn } from '../../engine/sandboxes/agent-channel.ts'
import type { AgentProcess } from '../../engine/sandboxes/agent-process.ts'
import type { SandboxJail } from '../../engine/sandboxes/sandbox-jail.ts'
import { BadRecord } from './file-records.ts'

/** Result that a builtin may write ahead of its reader, in bytes. */
const windowBytes = 256 * 1024
/** An error is a number. */
const keptErrorBytes = 16

/** The name of each number, as the kernel of this machine has it. */
const names = new Map(Object.entries(constants.errno).map(([name, number]) => [number, name]))

/** An operation on files that the agent performs in a process of its own. */
export class BuiltinRun {
  /** Its result as it comes, at the speed of its reader. */
  readonly output: AsyncQueue<Buffer>
  /** Resolves when it has ended well. @throws Refusal of the error that it met. */
  readonly done: Promise<void>
  readonly #process: AgentProcess
  readonly #done = Promise.withResolvers<void>()
  readonly #paths: readonly [string, string]
  #error = Buffer.alloc(0)
  #owedBytes = 0

  /**
   * @param path for refusals. @param created path that `move` and `copy` create.
   * @param lost resolves when the sandbox has ended.
   * @throws RangeError when the request is too large, or holds a NUL.
   */
  constructor(jail: SandboxJail, spawn: Spawn, path: string, created = path) {
    this.#paths = [path, created]
    this.done = this.#done.promise
    this.done.catch(() => undefined)
    this.output = new AsyncQueue<Buffer>({
      capacity: windowBytes,
      sizeOf: (piece) => piece.length,
      onTake: (piece) => this.#giveBack(piece.length),
      onAbandon: () => this.kill(),
    })
    this.#process = jail.spawn(spawn, {
      started: () => undefined,
      notStarted: (reason) => this.#fail(new Refusal('path_invalid', { problem: `cannot be reached: ${reason}` })),
      output: (stream, bytes) => this.#take(stream, bytes),
      ended: (exit) => {
        if (exit.how === 'exited' && exit.code === 0) this.#finish()
        else this.#fail(refusalOf(this.#error.toString('latin1'), this.#paths, spawn.builtin))
      },
    })
    this.#process.grant('output', windowBytes)
    const lose = () => this.#fail(new Refusal('unavailable', { reason: 'the sandbox has ended' }))
    const forget = whenResolved(jail.ended, lose)
    this.done.then(forget, forget)
  }

  write(bytes: Uint8Array): Promise<void> {
    return this.#process.write('stdin', bytes)
  }

  closeInput(): void {
    this.#process.close('stdin')
  }

  /** Ends it; what it has not finished has no effect. */
  kill(): void {
    this.#process.signal(constants.signals.SIGKILL, 'one')
  }

  #take(stream: 'stdout' | 'stderr' | 'channel', bytes: Uint8Array): void {
    if (stream !== 'stdout') {
      this.#error = Buffer.concat([this.#error, bytes]).subarray(0, keptErrorBytes)
      return
    }
    // Refused after it was given up; within its credit otherwise.
    if (!this.output.push(Buffer.from(bytes))) this.#giveBack(bytes.length)
  }

  #giveBack(bytes: number): void {
    this.#owedBytes += bytes
    if (this.#owedBytes < windowBytes / 4) return
    this.#process.grant('output', this.#owedBytes)
    this.#owedBytes = 0
  }

  #finish(): void {
    this.output.close()
    this.#done.resolve()
  }

  #fail(error: Error): void {
    this.output.fail(error)
    this.#done.reject(error)
  }
}

/** @throws Refusal invalid_argument when a request does not fit into a frame, or a word holds a NUL. */
export function withinFrame<T>(work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
    throw new Refusal('invalid_argument', { field: 'argv', problem: 'holds a NUL character or is too long' })
  }
}

/**
 * @param text number of an error, from the sandbox.
 * @param paths that a request used, and that it would have made.
 */
function refusalOf(text: string, [path, target]: readonly [string, string], builtin: Spawn['builtin']): Error {
  const name = names.get(Number(text))
  switch (name) {
    case 'ENOENT':
      return new Refusal('path_not_found', { path })
    case 'ENOTDIR':
      return new Refusal('not_a_directory', { path })
    case 'EISDIR':
      return new Refusal('not_a_file', { path, kind: 'directory' })
    case 'ENXIO':
    case 'ENODEV':
      return new Refusal('not_a_file', { path, kind: 'special file' })
    case 'EEXIST':
      return new Refusal('path_exists', { path: target })
    case 'ENOTEMPTY':
      return new Refusal('directory_not_empty', { path })
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return new Refusal('path_denied', { path })
    case 'ELOOP':
      return new Refusal('path_invalid', { problem: 'goes through too many links or directories' })
    case 'EINVAL':
      return new Refusal('path_invalid', { problem: 'leads into itself' })
    case 'ENAMETOOLONG':
      return new Refusal('path_invalid', { problem: 'is too long' })
    case 'EBUSY':
    case 'ETXTBSY':
      return new Refusal('file_busy', { path })
    case 'ENOSPC':
      if (builtin === 'watch')
        return new Refusal('path_invalid', { problem: 'has more than 4,096 directories to watch' })
      return new Refusal('storage_full')
    case 'EDQUOT':
    case 'EFBIG':
    case 'EMLINK':
      return new Refusal('storage_full')
    case 'EOVERFLOW':
      return new Refusal('unavailable', { reason: 'files changed faster than they could be reported' })
    // What only files of the kernel answer, as /proc/self/mem does.
    case 'EIO':
    case 'EFAULT':
    case 'ENODATA':
    case 'ESRCH':
    case 'ENOMEM':
    case 'ESPIPE':
      return new Refusal('path_invalid', { problem: `cannot be read or written: the kernel answered ${name}` })
    default:
      return text === '' ? new Refusal('unavailable', { reason: 'the operation was ended' }) : new BadRecord()
  }
}
