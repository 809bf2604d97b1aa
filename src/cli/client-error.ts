import { exitCodes } from './process-io.ts'

/** A failure of a client command, with the exit code that it ends with. */
export class ClientError extends Error {
  readonly exitCode: number
  /** The error of the answer of the server, such as `not_found`, if there was an answer. */
  readonly code: string | undefined

  constructor(message: string, exitCode: number = exitCodes.software, code?: string) {
    super(message)
    this.exitCode = exitCode
    this.code = code
  }
}
