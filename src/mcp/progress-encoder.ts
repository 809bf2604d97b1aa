import type { Progress } from '../tools/tool.ts'
import { encodeNotification } from './json-rpc/encode.ts'
import type { RequestId } from './json-rpc/message.ts'

/** Encodes the progress notifications of one call. Each number is greater than the last, as MCP requires. */
export class ProgressEncoder {
  readonly #token: RequestId | undefined
  #last = -1

  constructor(token: RequestId | undefined) {
    this.#token = token
  }

  encode({ message, done, total }: Progress): string {
    const progress = done !== undefined && done > this.#last ? done : Math.max(this.#last, 0) + 1
    this.#last = progress
    const params = { progressToken: this.#token, progress, ...(total !== undefined && { total }), message }
    return encodeNotification('notifications/progress', params)
  }
}
