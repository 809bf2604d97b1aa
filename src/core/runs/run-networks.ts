import { createHash } from 'node:crypto'
import { BackgroundJob } from '../../base/background-job.ts'
import { Refusal } from '../../base/errors.ts'
import { noDestinations } from '../../base/network.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { NetworkSecrets } from '../access/network-secrets.ts'
import type { Caller } from '../caller.ts'

/** A changed policy or secret reaches runs within this time, also when a command has changed it. */
const everyMs = 500

/** Sends changed network policies and secrets to runs that have a network. */
export class RunNetworks {
  readonly #runner: Runner['networks']
  readonly #secrets: NetworkSecrets
  readonly #callerOf: (keyId: string) => Promise<Caller>
  /** Digests of what each run has. */
  #sent = new Map<string, string>()
  readonly job: BackgroundJob

  /** @param callerOf rejects with a refusal for a key that is no longer valid: its runs are cancelled. */
  constructor(
    runner: Runner['networks'],
    secrets: NetworkSecrets,
    callerOf: (keyId: string) => Promise<Caller>,
    onFault: (error: unknown) => void,
  ) {
    this.#runner = runner
    this.#secrets = secrets
    this.#callerOf = callerOf
    this.job = new BackgroundJob({
      everyMs,
      work: () => this.#check(),
      onFault: (error) => error instanceof Refusal || onFault(error),
    })
  }

  async #check(): Promise<void> {
    const runs = await this.#runner.list()
    const ofKeys = Map.groupBy(runs, ({ keyId }) => keyId)
    const sent = new Map<string, string>()
    const results = await Promise.allSettled([...ofKeys].map(([keyId, own]) => this.#checkKey(keyId, own, sent)))
    this.#sent = sent
    const failed = results.find((result) => result.status === 'rejected')
    if (failed) throw failed.reason
  }

  async #checkKey(keyId: string, runs: readonly { runId: string }[], sent: Map<string, string>): Promise<void> {
    const { network = noDestinations } = await this.#secrets.availableOf(await this.#callerOf(keyId))
    const digest = createHash('sha256').update(JSON.stringify(network)).digest('base64')
    for (const { runId } of runs) {
      if (this.#sent.get(runId) !== digest) await this.#runner.change(runId, network)
      sent.set(runId, digest)
    }
  }
}
