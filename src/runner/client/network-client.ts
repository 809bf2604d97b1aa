import type { FromRunner, ToRunner } from '../protocol/messages.ts'
import type { RunnerNetworks } from '../protocol/network-messages.ts'
import { WireError } from '../protocol/wire.ts'

/** The networks of runs, asked of a runner. */
export const networkClient = (
  ask: (message: (request: number) => ToRunner) => Promise<FromRunner>,
): RunnerNetworks => ({
  list: async () => {
    const answer = await ask((request) => ({ type: 'network_runs', request }))
    if (answer.type !== 'networked_runs') throw new WireError(`a runner answered ${answer.type} to network_runs`)
    return answer.runs
  },
  change: async (runId, network) => {
    await ask((request) => ({ type: 'network_change', request, runId, network }))
  },
})
