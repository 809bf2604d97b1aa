import type { FromRunner, Runner, ToRunner } from '../protocol/messages.ts'
import { WireError } from '../protocol/wire.ts'

/** Asks a runner for reports. */
export const inspectionClient =
  (ask: (message: (request: number) => ToRunner) => Promise<FromRunner>): Runner['inspect'] =>
  async (topic, options) => {
    const answer = await ask((request) => ({ type: 'inspect', request, topic, options }))
    if (answer.type !== 'inspected') throw new WireError(`a runner answered ${answer.type} to inspect`)
    return answer.report
  }
