import { createHash } from 'node:crypto'
import { BackgroundJob, type Timers } from '../../base/background-job.ts'
import { Refusal } from '../../base/errors.ts'
import { noDestinations } from '../../base/network.ts'
import { fault } from '../../observe/log.ts'
import type { SandboxRow } from '../../store/sandbox-rows.ts'
import type { Caller } from '../caller.ts'
import type { SandboxLifecycle } from './lifecycle.ts'
import { settingsOf } from './settings.ts'

/** A changed policy or secret reaches running sandboxes within this time, also when a command has changed it. */
const everyMs = 500

/** Sends changed network policies and secrets to running sandboxes. */
export class SandboxNetworks {
  readonly #lifecycle: SandboxLifecycle
  readonly #callerOf: (keyId: string) => Promise<Caller>
  /** Digests of what each sandbox has. */
  readonly #sent = new Map<string, string>()
  readonly #job: BackgroundJob

  /** @param callerOf rejects with a refusal for a key that is no longer valid. */
  constructor(lifecycle: SandboxLifecycle, callerOf: (keyId: string) => Promise<Caller>, timers?: Timers) {
    this.#lifecycle = lifecycle
    this.#callerOf = callerOf
    this.#job = new BackgroundJob({
      everyMs,
      work: () => this.check(),
      onFault: (error) => error instanceof Refusal || fault(error, lifecycle.deps.log),
      ...(timers && { timers }),
    })
  }

  start(): void {
    this.#job.start()
  }

  stop(): Promise<void> {
    return this.#job.stop()
  }

  /** Compares all running sandboxes once. */
  async check(): Promise<void> {
    const rows = await this.#lifecycle.deps.store.sandboxes.inStates(['running', 'paused'])
    const ids = new Set(rows.map(({ id }) => id))
    for (const id of this.#sent.keys()) if (!ids.has(id)) this.#sent.delete(id)
    const results = await Promise.allSettled(rows.map((row) => this.#compare(row)))
    const failed = results.find(({ status }) => status === 'rejected')
    if (failed?.status === 'rejected') throw failed.reason
  }

  async #compare(row: SandboxRow): Promise<void> {
    const { id, keyId } = row
    if (this.#lifecycle.isChanging(id)) return
    const { runner, secrets } = this.#lifecycle.deps
    const caller = await this.#callerOf(keyId)
    const { network = noDestinations } = await secrets.availableOf(caller, settingsOf(row).secrets)
    const digest = createHash('sha256').update(JSON.stringify(network)).digest('base64')
    if (this.#sent.get(id) === digest) return
    await runner.changeNetwork(id, network)
    this.#sent.set(id, digest)
  }
}
