import type { Progress } from '../tools/tool.ts'
import { notificationText } from './json-rpc.ts'

/** Numbers the steps of one call: each is more than the one before, whatever a tool says. */
export class ProgressSteps {
  readonly #token: string | number | undefined
  #last = -1

  constructor(token: string | number | undefined) {
    this.#token = token
  }

  next({ message, done, total }: Progress): string {
    const progress = done !== undefined && done > this.#last ? done : Math.max(this.#last, 0) + 1
    this.#last = progress
    const params = { progressToken: this.#token, progress, ...(total !== undefined && { total }), message }
    return notificationText('notifications/progress', params)
  }
}
