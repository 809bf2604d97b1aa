import { Refusal } from '../../base/errors.ts'
import type { ChangedFiles, Ending, RunSpec } from '../../base/run.ts'
import type { DockMounts } from '../../engine/slots/guest-channel.ts'
import type { Slot } from '../../engine/slots/slot.ts'
import type { OpenStorage } from '../storage/storage.ts'
import type { ThreadClaim } from '../storage/thread-claims.ts'
import type { VolumesClaim } from '../storage/volume-claims.ts'
import { hasFailed } from './slot-mounts.ts'

/** The thread and the volumes of one run, from the request until its jail is dead. */
export class RunStorage {
  readonly #thread: ThreadClaim | undefined
  readonly #volumes: VolumesClaim | undefined
  readonly #storage: OpenStorage | undefined
  /** Limit of the storage for whose writes the run was ended, since the disk of the server is nearly full. */
  #endedAtBytes: number | undefined
  #unwatch: (() => void)[] = []

  /**
   * @param storage absent if the runner has no storage.
   * @throws Refusal thread_busy, volume_unknown, threads_unavailable, volumes_unavailable.
   */
  constructor(spec: RunSpec, storage: OpenStorage | undefined) {
    const { thread, volumes = [] } = spec
    this.#storage = storage
    if (!storage && thread) throw new Refusal('threads_unavailable')
    if (!storage && volumes.length > 0) throw new Refusal('volumes_unavailable')
    this.#volumes = volumes.length > 0 ? storage?.volumes.claim(spec, volumes) : undefined
    this.#thread = thread && storage?.threads.claim(spec, thread)
  }

  /** Mounts it, made first if need be. @throws Refusal unavailable. */
  async mount(): Promise<void> {
    await this.#thread?.mount()
    await this.#volumes?.mount()
  }

  /** Shows it to the slot. @returns the entries of its dock. */
  async attach(slot: Slot): Promise<DockMounts> {
    return { dock: await this.#thread?.attach(slot), volumes: await this.#volumes?.attach(slot) }
  }

  /** Ends the run when what it writes would use up the reserve of the disk. @param stop ends it as `cancelled`. */
  watch(stop: () => void): void {
    const watch = this.#storage?.watch
    if (!watch) return
    for (const { mounted, limitBytes } of this.#writable()) {
      const end = () => {
        this.#endedAtBytes = limitBytes
        stop()
      }
      this.#unwatch.push(watch.add({ id: mounted.id, stop: end }))
    }
  }

  /**
   * How a run ended, seen together with its storage. A program that fails, or dies of a page that could not be written,
   * while storage is full that it could write to, ended for that. Which error the program received only the program
   * knows: one that fails for another reason on full storage is counted the same. No run succeeds whose
   * files the disk could not store.
   */
  async endingOf(ending: Ending): Promise<Ending> {
    for (const unwatch of this.#unwatch.splice(0)) unwatch()
    const isKept = !this.#storage?.watch.isShort || (await this.#isKept(this.#storage))
    if (ending.kind === 'cancelled' && this.#endedAtBytes !== undefined)
      return { kind: 'disk_quota', limitBytes: this.#endedAtBytes, disk: 'server' }
    if (!isKept && (ending.kind === 'exited' || hasFailed(ending))) return { kind: 'failed', reason: 'files_lost' }
    return this.#atLimit(ending)
  }

  async #isKept({ kept }: OpenStorage): Promise<boolean> {
    const all = await Promise.all(this.#writable().map(({ mounted }) => kept(mounted)))
    return all.every(Boolean)
  }

  #writable() {
    return [...(this.#thread?.writable ?? []), ...(this.#volumes?.writable ?? [])]
  }

  async #atLimit(ending: Ending): Promise<Ending> {
    if (!hasFailed(ending)) return ending
    const limitBytes = (await this.#thread?.limitReached()) ?? (await this.#volumes?.limitReached())
    return limitBytes === undefined ? ending : { kind: 'disk_quota', limitBytes }
  }

  /** Removes the copy of the program from its thread; only when every process of it is dead. @throws system errors. */
  async removeProgramCopies(): Promise<void> {
    await this.#thread?.removeProgramCopies()
  }

  /**
   * What a run has left of files in its thread; only when every process of it is dead.
   * @param startMs when it started, by the wall clock.
   * @returns undefined where it has no thread.
   * @throws system errors of a filesystem that cannot be read.
   */
  async changesSince(startMs: number): Promise<ChangedFiles | undefined> {
    return this.#thread?.changesSince(startMs)
  }

  /**
   * Stores changed files as durably as the answer promises.
   * @param files what the run has changed.
   * @returns its ending: a failure if the disk has lost some of them.
   */
  async keep(ending: Ending, files: ChangedFiles | undefined): Promise<Ending> {
    const isChanged = files !== undefined && (files.changed.length > 0 || files.truncated)
    if (!isChanged || !this.#storage || !this.#thread) return ending
    const stored = await Promise.all(this.#thread.writable.map(({ mounted }) => this.#storage?.changed.keep(mounted)))
    const isLost = stored.includes(false) && (ending.kind === 'exited' || hasFailed(ending))
    return isLost ? { kind: 'failed', reason: 'files_lost' } : ending
  }

  /**
   * Gives it back; only when every process of the run is dead. A slot that still holds on to it ends first.
   * @throws what detaching throws; all is free then, too, and the slot has ended.
   */
  async release(): Promise<void> {
    for (const unwatch of this.#unwatch.splice(0)) unwatch()
    try {
      await this.#volumes?.release()
    } finally {
      await this.#thread?.release()
    }
  }
}
