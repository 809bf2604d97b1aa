import type { JailNetwork } from '../../base/network.ts'

/** A run that has a network. */
export interface NetworkedRun {
  runId: string
  keyId: string
}

export type ToNetworks =
  /** Answered with the runs that have a network and have not ended. */
  | { type: 'network_runs'; request: number }
  | { type: 'network_change'; request: number; runId: string; network: JailNetwork }

export type FromNetworks = { type: 'networked_runs'; request: number; runs: NetworkedRun[] }

export const isAboutNetworks = <Message extends { type: string }>(
  message: Message,
): message is Extract<Message, ToNetworks> => message.type.startsWith('network_')

/** The networks of runs, as a front uses them. */
export interface RunnerNetworks {
  /** Runs that have a network and have not ended. @throws Refusal `unavailable`. */
  list(): Promise<NetworkedRun[]>

  /**
   * Replaces the policy of a run: for new connections, and open ones that it does not allow end. A run that was started
   * without a network has none.
   * @throws Refusal `run_unknown`, `unavailable`.
   */
  change(runId: string, network: JailNetwork): Promise<void>
}
