import { hash } from 'node:crypto'
import { BackgroundJob } from '../../base/background-job.ts'
import { monotonicMs, steadyTimestamp, timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { newSandboxId } from '../../base/ids.ts'
import { defaultImage } from '../../base/image.ts'
import type { ProfilePackages } from '../../base/packages.ts'
import type { Profile } from '../../base/profile.ts'
import type { RunVolume } from '../../base/run.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Metrics } from '../../observe/metrics.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { PackageLayerRow } from '../../store/package-layers.ts'
import type { Store } from '../../store/store.ts'
import type { Profiles } from '../access/profiles.ts'
import type { Caller } from '../caller.ts'
import { ignoreRefusal, withoutStop } from '../upstreams/programs/program-process.ts'
import { install, managerEnv, toInstallationSpec, toVolume } from './installation.ts'

/** Limits of installations. */
export interface PackageLimits {
  /** Size of what is installed for a profile. */
  sizeBytes: number
  /** Longest time of an installation. */
  buildMs: number
  /** Installations at the same time. */
  buildsMax: number
  buildsPerOrg: number
}

export interface PackageDeps {
  store: Store
  runner: Runner
  profiles: Profiles
  limits: PackageLimits
  metrics: Pick<Metrics, 'packages'>
  log: Log
}

/** Time after which a client may ask again whether packages are installed. */
const retryAfterSeconds = 3
/** Pause after a first failure; it doubles with each further one. */
const firstPauseMs = 15_000
const longestPauseMs = 15 * 60_000
const sweepEveryMs = 10_000

/** Refusals of the runner that say nothing about the packages: it was restarted, or has no room for a sandbox. */
const passing: readonly string[] = ['unavailable', 'sandbox_unknown', 'sandbox_not_running', 'sandbox_busy']

type Needed = ProfilePackages & { image: string; content: string }

/**
 * The packages of profiles: each list is installed once for an organization, by a sandbox with the network of the profile, on
 * a volume that runs get read-only. Only this object mounts it writable, and only before its row says that it is ready.
 */
export class PackageLayers {
  readonly #deps: PackageDeps
  /** By organization and content. */
  readonly #building = new Map<string, { orgId: string; id: string; done: Promise<void> }>()
  readonly #ready = new Map<string, RunVolume>()
  /** Why installations were not completed that the next call begins again, until it is answered. */
  readonly #interrupted = new Map<string, Refusal>()
  readonly #contents = new WeakMap<Profile, { of: string; content: string }>()
  #isClosed = false
  readonly job: BackgroundJob

  constructor(deps: PackageDeps) {
    this.#deps = deps
    this.job = new BackgroundJob({
      everyMs: sweepEveryMs,
      work: () => this.sweep(),
      // While no runner is connected, it refuses.
      onFault: (error) => error instanceof Refusal || fault(error, deps.log),
    })
  }

  /**
   * Returns the volume with the packages of a profile; `undefined` if it has none. Begins to install them if they are not.
   * @param image in which they would be used; they are for the image of the profile only.
   * @throws Refusal packages_installing, packages_failed, image_unknown, limit_reached, unavailable.
   */
  async of(caller: Caller, image: string): Promise<RunVolume | undefined> {
    const { orgId, profile } = caller
    const { images } = this.#deps.runner
    if (profile.packages === undefined || images.digestOf(image) !== images.digestOf(profile.image)) return undefined
    const needed = this.#neededBy(profile, profile.packages)
    const key = `${orgId} ${needed.content}`
    const known = this.#ready.get(key)
    if (known) return known
    const row = this.#building.has(key) ? undefined : await this.#deps.store.packageLayers.get(orgId, needed.content)
    if (row?.state === 'ready' && (await this.#exists(row))) {
      const volume = toVolume(row.id, row.quotaBytes)
      this.#ready.set(key, volume)
      return volume
    }
    if (row?.state === 'failed' && row.retryAt !== null && row.retryAt > steadyTimestamp()) {
      const waitSeconds = Math.ceil((Date.parse(row.retryAt) - Date.parse(steadyTimestamp())) / 1000)
      const details = { profile: profile.name, problem: row.problem ?? '', retryAfterSeconds: Math.max(1, waitSeconds) }
      throw new Refusal('packages_failed', details)
    }
    const interrupted = this.#interrupted.get(key)
    this.#interrupted.delete(key)
    if (this.#mayBegin(key, orgId)) await this.#begin(key, caller, needed, row)
    if (interrupted) throw interrupted
    throw new Refusal('packages_installing', { profile: profile.name, retryAfterSeconds })
  }

  /** Removes what no profile names any more, and what an earlier process has not finished. */
  async sweep(): Promise<void> {
    const { store, runner, profiles } = this.#deps
    const rows = await store.packageLayers.list()
    // Without a runner it is not known what images contain.
    if (rows.length === 0 || runner.images.digestOf(defaultImage) === undefined) return
    const stored = await store.storedProfiles.all()
    for (const [orgId, own] of Map.groupBy(rows, (row) => row.orgId)) {
      const names = stored.filter((row) => row.orgId === orgId).map(({ name }) => name)
      const all = await Promise.all(names.map((name) => profiles.get(orgId, name)))
      const offered = [...profiles.offeredTo(orgId), ...all].filter((profile) => profile !== undefined)
      const contents = new Set(offered.map((profile) => this.#contentOf(profile)))
      for (const row of own) {
        const isNamed = contents.has(row.content) && (row.state === 'ready' || row.state === 'failed')
        if (!isNamed && !this.#building.has(`${orgId} ${row.content}`)) await this.#remove(row)
      }
    }
  }

  /** Ends all installations. The next process begins them again. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.job.stop()
    for (const { id } of this.#building.values()) await this.#deps.runner.sandboxes.stop(id, 0).catch(ignoreRefusal)
    await Promise.all([...this.#building.values()].map(({ done }) => done))
  }

  /** @throws Refusal image_unknown, unavailable. */
  #neededBy(profile: Profile, packages: ProfilePackages): Needed {
    const { image } = profile
    const content = this.#contentOf(profile)
    if (content !== undefined) return { ...packages, image, content }
    if (this.#deps.runner.identity === undefined)
      throw new Refusal('unavailable', { reason: 'the runner is not connected' })
    throw new Refusal('image_unknown', { image })
  }

  /** Names what is installed: other packages, and another image or network, have another one. */
  #contentOf(profile: Profile): string | undefined {
    const digest = this.#deps.runner.images.digestOf(profile.image)
    if (profile.packages === undefined || digest === undefined) return undefined
    const known = this.#contents.get(profile)
    if (known?.of === digest) return known.content
    const { pip, npm, apt, network } = profile.packages
    const { policy, rules, networks } = network
    const own = [digest, pip, npm, policy, rules, networks, managerEnv(profile.env), ...(apt.length > 0 ? [apt] : [])]
    const content = hash('sha256', JSON.stringify(own))
    this.#contents.set(profile, { of: digest, content })
    return content
  }

  /** The files of volumes can be lost with a disk, while the database is restored. */
  async #exists({ orgId, id }: PackageLayerRow): Promise<boolean> {
    const [size] = await this.#deps.runner.storage.sizes('volumes', orgId, [id])
    return size !== null
  }

  #mayBegin(key: string, orgId: string): boolean {
    const { buildsMax, buildsPerOrg } = this.#deps.limits
    const all = [...this.#building.values()]
    const isFull = all.length >= buildsMax || all.filter((one) => one.orgId === orgId).length >= buildsPerOrg
    // Another call may have begun, or completed, it meanwhile.
    return !this.#isClosed && !isFull && !this.#building.has(key) && !this.#ready.has(key)
  }

  /** @param old row of an earlier attempt. */
  async #begin(key: string, caller: Caller, needed: Needed, old: PackageLayerRow | undefined): Promise<void> {
    const { store, limits } = this.#deps
    const { orgId, profile } = caller
    const row: PackageLayerRow = {
      ...{ id: newSandboxId(), orgId, content: needed.content, profile: profile.name, quotaBytes: limits.sizeBytes },
      ...{ state: 'building', problem: null, failures: old?.failures ?? 0, retryAt: null, createdAt: timestamp() },
    }
    const { promise: done, resolve } = Promise.withResolvers<void>()
    this.#building.set(key, { orgId, id: row.id, done })
    this.#deps.metrics.packages.installing(this.#building.size)
    const end = () => {
      this.#building.delete(key)
      this.#deps.metrics.packages.installing(this.#building.size)
      resolve()
    }
    try {
      if (old) await this.#discard(old)
      await store.packageLayers.begin(row)
    } catch (error) {
      end()
      // The earlier attempt is still being ended.
      if (error instanceof Refusal && (error.code === 'sandbox_busy' || error.code === 'volume_busy')) return
      throw error
    }
    void this.#build(row, caller, needed, key)
      .catch((error: unknown) => fault(error, this.#deps.log))
      .finally(end)
  }

  /** Installs packages, and records what became of it. */
  async #build(row: PackageLayerRow, caller: Caller, needed: Needed, key: string): Promise<void> {
    const { store, metrics, log } = this.#deps
    const startedMs = monotonicMs()
    const about = { org_id: row.orgId, profile: row.profile }
    const problem = await this.#install(row, caller, needed, key)
    const tookMs = monotonicMs() - startedMs
    if (problem === undefined && !this.#isClosed) {
      metrics.packages.installed('installed', tookMs)
      await store.packageLayers.update(row.id, { state: 'ready', failures: 0 })
      this.#ready.set(key, toVolume(row.id, row.quotaBytes))
      log.info({ ...about, took_ms: Math.round(tookMs) }, 'installed the packages of a profile')
      return
    }
    const isInterrupted = problem === undefined || problem === null
    metrics.packages.installed(isInterrupted ? 'interrupted' : 'failed', tookMs)
    if (isInterrupted) return this.#remove(row)
    // What cannot be removed now is removed with the row.
    await this.#discard(row).catch(ignoreRefusal)
    const failures = row.failures + 1
    const pauseMs = Math.min(longestPauseMs, firstPauseMs * 2 ** Math.min(failures - 1, 10))
    const retryAt = steadyTimestamp(pauseMs)
    await store.packageLayers.update(row.id, { state: 'failed', problem, failures, retryAt, quotaBytes: 0 })
    log.warn({ ...about, problem }, 'the packages of a profile could not be installed')
  }

  /** @returns what failed; `null` if it was stopped before it ended, and `undefined` if it succeeded. */
  async #install(
    row: PackageLayerRow,
    caller: Caller,
    needed: Needed,
    key: string,
  ): Promise<string | null | undefined> {
    const { runner, limits } = this.#deps
    const spec = toInstallationSpec(caller, needed.image, needed.network, toVolume(row.id, row.quotaBytes))
    try {
      await runner.sandboxes.start(spec)
      try {
        return await install(runner.sandboxes.processes, row.id, needed, limits.buildMs)
      } finally {
        await runner.sandboxes.stop(row.id, 0).catch(ignoreRefusal)
        await runner.sandboxes.remove(row.orgId, row.id).catch(ignoreRefusal)
      }
    } catch (error) {
      if (!(error instanceof Refusal)) {
        await this.#discard(row).catch(ignoreRefusal)
        throw error
      }
      if (!passing.includes(error.code)) return withoutStop(error.message)
      if (error.code === 'unavailable') this.#interrupted.set(key, error)
      return null
    }
  }

  /** Removes the sandbox and the volume of a row. @throws Refusal volume_busy, unavailable. */
  async #discard({ orgId, id }: PackageLayerRow): Promise<void> {
    const { runner } = this.#deps
    await runner.sandboxes.stop(id, 0).catch(ignoreRefusal)
    await runner.sandboxes.remove(orgId, id)
    await runner.storage.remove({ area: 'volumes', org: orgId, name: id })
  }

  /** Removes a row with everything that belongs to it; later, if a run or a sandbox still has it or no runner is connected. */
  async #remove(row: PackageLayerRow): Promise<void> {
    this.#ready.delete(`${row.orgId} ${row.content}`)
    try {
      await this.#discard(row)
    } catch (error) {
      return ignoreRefusal(error)
    }
    await this.#deps.store.packageLayers.remove(row.id)
  }
}
