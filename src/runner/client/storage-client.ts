import type {
  FromRunner,
  RunnerStorage,
  StorageArea,
  StorageRef,
  StorageStatus,
  ToRunner,
} from '../protocol/messages.ts'

/** The client of `storage_*` in the front: requests with one response. */
export class StorageClient implements RunnerStorage {
  readonly #ask: (message: (request: number) => ToRunner) => Promise<FromRunner>

  constructor(ask: (message: (request: number) => ToRunner) => Promise<FromRunner>) {
    this.#ask = ask
  }

  create(where: StorageRef, quota: { bytes: number; inodes: number }): Promise<boolean> {
    return this.#did((request) => ({ type: 'storage_create', request, where, quota }))
  }

  remove(where: StorageRef): Promise<boolean> {
    return this.#did((request) => ({ type: 'storage_remove', request, where }))
  }

  fork(from: StorageRef, to: StorageRef): Promise<boolean> {
    return this.#did((request) => ({ type: 'storage_fork', request, from, to }))
  }

  async inspect(where: StorageRef): Promise<StorageStatus> {
    const answer = await this.#ask((request) => ({ type: 'storage_inspect', request, where }))
    if (answer.type !== 'storage_status') throw unexpected(answer)
    return answer.status
  }

  async sizes(area: StorageArea, org: string, names: readonly string[]): Promise<(number | null)[]> {
    const answer = await this.#ask((request) => ({ type: 'storage_sizes', request, area, org, names }))
    if (answer.type !== 'storage_sizes') throw unexpected(answer)
    return answer.sizeBytes
  }

  async names(area: StorageArea, org: string, after: string, limit: number): Promise<string[]> {
    const answer = await this.#ask((request) => ({ type: 'storage_names', request, area, org, after, limit }))
    if (answer.type !== 'storage_names') throw unexpected(answer)
    return answer.names
  }

  async #did(message: (request: number) => ToRunner): Promise<boolean> {
    const answer = await this.#ask(message)
    if (answer.type !== 'storage_done') throw unexpected(answer)
    return answer.did
  }
}

const unexpected = ({ type }: FromRunner): Error => new Error(`the runner answered ${type} to a question about storage`)
