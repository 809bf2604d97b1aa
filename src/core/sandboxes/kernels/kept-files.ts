import { Refusal } from '../../../base/errors.ts'
import type { RewoundFiles, SandboxStates } from '../../../runner/protocol/sandboxes.ts'

/** The files of a sandbox as they were after the last calls of one context. */
export class KeptFiles {
  readonly #states: SandboxStates
  readonly #sandboxId: string
  readonly #context: string
  readonly #calls: number
  /** Whether the states are those after the last calls; not so after an error, or while another front ran calls. */
  #isCurrent = false

  /** @param calls that can be rewound. */
  constructor(states: SandboxStates, sandboxId: string, context: string, calls: number) {
    this.#states = states
    this.#sandboxId = sandboxId
    this.#context = context
    this.#calls = calls
  }

  /** Forgets the earlier states and keeps the present one, which is that of a kernel without calls. */
  async begin(): Promise<void> {
    this.#isCurrent = false
    await this.#attempt(async () => {
      await this.#states.forget(this.#sandboxId, this.#context)
      await this.#states.keep(this.#sandboxId, this.#context, this.#calls, 0)
    })
  }

  /** Keeps the present state after a call, or after a rewind of variables only. @param undone calls that were rewound. */
  async keep(undone = 0): Promise<void> {
    if (!this.#isCurrent) return this.begin()
    this.#isCurrent = false
    await this.#attempt(() => this.#states.keep(this.#sandboxId, this.#context, this.#calls, undone))
  }

  /** A state that cannot be kept prevents a rewind, and no call. */
  async #attempt(work: () => Promise<void>): Promise<void> {
    await work().then(
      () => {
        this.#isCurrent = true
      },
      () => undefined,
    )
  }

  /** @throws Refusal rewind_unavailable. */
  async check(calls: number): Promise<void> {
    if (!this.#isCurrent)
      throw new Refusal('rewind_unavailable', { context: this.#context, reason: 'its files could not be kept' })
    await this.#states.check(this.#sandboxId, this.#context, calls)
  }

  /** @throws Refusal of the runner; some files may have been put back then. */
  rewind(calls: number): Promise<RewoundFiles> {
    return this.#states.rewind(this.#sandboxId, this.#context, calls)
  }

  async forget(): Promise<void> {
    this.#isCurrent = false
    await this.#states.forget(this.#sandboxId, this.#context).catch(() => undefined)
  }
}
