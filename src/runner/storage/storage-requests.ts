import { Refusal } from '../../base/errors.ts'
import type { FilesystemId } from '../../storage/filesystem-id.ts'
import type { FrontLink } from '../front-link.ts'
import type { FromRunner, StorageStatus, ToRunner } from '../protocol/messages.ts'
import type { OpenStorage } from './storage.ts'

export type StorageMessage = Extract<ToRunner, { type: `storage_${string}` }>

export const isOfStorage = (message: ToRunner): message is StorageMessage => message.type.startsWith('storage_')

/** One copies an image or waits for a disk; more than these at once is a front that is broken. */
const pendingMax = 256
const retryAfterSeconds = 1

/** What a front asks of threads and volumes as a whole. */
export class StorageRequests {
  readonly #storage: OpenStorage | undefined
  readonly #link: FrontLink
  #pending = 0

  /**
   * @param storage absent if the runner has no storage.
   */
  constructor(storage: OpenStorage | undefined, link: FrontLink) {
    this.#storage = storage
    this.#link = link
  }

  handle(message: StorageMessage): void {
    if (this.#pending >= pendingMax) {
      this.#link.refuse(message.request, new Refusal('files_busy', { retryAfterSeconds }))
      return
    }
    this.#pending += 1
    this.#answer(message)
      .then(
        (answer) => this.#link.send(answer),
        (error: unknown) => this.#link.refuse(message.request, error),
      )
      .finally(() => {
        this.#pending -= 1
      })
  }

  async #answer(message: StorageMessage): Promise<FromRunner> {
    const storage = this.#storage
    const { request } = message
    if (!storage) throw new Refusal('storage_unavailable')
    switch (message.type) {
      case 'storage_create': {
        const did = await storage[message.where.area].create(message.where, message.quota)
        return { type: 'storage_done', request, did }
      }
      case 'storage_remove': {
        const did = await storage[message.where.area].remove(message.where)
        return { type: 'storage_done', request, did }
      }
      case 'storage_fork': {
        const { from, to } = message
        return { type: 'storage_done', request, did: await storage.threads.fork(from, to) }
      }
      case 'storage_inspect':
        return { type: 'storage_status', request, status: await inspect(storage, message.where) }
      case 'storage_sizes':
        return { type: 'storage_sizes', request, sizeBytes: await sizes(storage, message) }
      case 'storage_names':
        return { type: 'storage_names', request, names: await namesOf(storage, message) }
    }
  }
}

async function inspect({ mounts }: OpenStorage, where: FilesystemId): Promise<StorageStatus> {
  const { usedBytes, freeBytes, totalInodes, freeInodes, allocatedBytes, wasMounted } = await mounts.inspect(where)
  return {
    sizeBytes: allocatedBytes,
    usedBytes,
    quotaBytes: usedBytes + freeBytes,
    inodes: totalInodes - freeInodes,
    inodesMax: totalInodes,
    mounted: wasMounted,
  }
}

async function sizes(
  { mounts }: OpenStorage,
  { area, org, names }: Extract<StorageMessage, { type: 'storage_sizes' }>,
): Promise<(number | null)[]> {
  return Promise.all(names.map(async (name) => (await mounts.allocatedBytes({ area, org, name })) ?? null))
}

async function namesOf(
  { mounts }: OpenStorage,
  { area, org, after, limit }: Extract<StorageMessage, { type: 'storage_names' }>,
): Promise<string[]> {
  const names = await mounts.names(area, org)
  return names
    .filter((name) => name > after)
    .sort((a, b) => (a < b ? -1 : 1))
    .slice(0, limit)
}
