import { BackgroundJob } from '../../../base/background-job.ts'
import { monotonicMs } from '../../../base/clock.ts'
import { Refusal } from '../../../base/errors.ts'
import { InTurn } from '../../../base/in-turn.ts'
import { fault } from '../../../observe/log.ts'
import type { UpstreamSandboxRow } from '../../../store/upstream-sandboxes.ts'
import { CrashBackoff } from './crash-backoff.ts'
import { BackgroundReadings } from './installations.ts'
import { installOf, offlineEnv } from './program.ts'
import type { ProgramDeps } from './program-deps.ts'
import { ProgramDisks } from './program-disks.ts'
import { ProgramErrors } from './program-errors.ts'
import { ignoreRefusal, ProgramProcess, problemOf, type UpstreamProcess } from './program-process.ts'
import { type OpenedCredential, openCredential, type ProgramTarget, toProgramSpec } from './sandbox-spec.ts'

/** Processes of one sandbox: each belongs to a session of a client. */
const processesMax = 16
/** A sandbox without processes is kept for this time, since a client may open its next session. */
const restMs = 5_000
/** Changes that a command has made are noticed within this time. */
const sweepMs = 500
/** Interval in which sandboxes are stopped that are not used any more. */
const searchEveryMs = 60_000
/** Longest use of a sandbox by a command beside the server: it installs a program and reads its tools. */
const foreignMaxMs = 15 * 60_000
/** Output of a process that is kept until it is read. */
const keepBytes = 256 * 1024
const retryAfterSeconds = 5

/** A sandbox that runs. */
interface Running {
  row: UpstreamSandboxRow
  /** Changes with the program and its credential. */
  fingerprint: string
  credential: OpenedCredential
  processes: Set<UpstreamProcess>
  startedMs: number
  lifetimeMs: number
  /** Monotonic time since which it has no process. */
  restingSinceMs: number
}

/** A sandbox that is being started. */
interface Opening {
  orgId: string
  upstreamId: string
  sandboxId?: string
}

/** Refusals of the runner for a sandbox that has ended by itself. */
const crashes: readonly string[] = ['sandbox_not_running', 'sandbox_unknown']

/** What is known about the sandbox of an upstream. */
export interface ProgramStatus {
  upstreamId: string
  orgId: string
  processes: number
  uptimeMs: number
  /** Lines on standard output that were no messages, of all its processes since the start of the server. */
  skippedLines: number
}

/**
 * Runs upstreams that are programs. Each has one sandbox for each of its credentials, which runs while it is used: it is
 * not a named sandbox, no key can reach it, and its disk holds only what was installed and what the program keeps.
 */
export class UpstreamPrograms {
  readonly #deps: ProgramDeps
  readonly #turns = new InTurn()
  readonly #running = new Map<string, Running>()
  readonly #opening = new Map<string, Opening>()
  readonly #errors = new ProgramErrors()
  readonly #backoff = new CrashBackoff()
  readonly #disks: ProgramDisks
  readonly #turnOf = new Map<string, number>()
  readonly #openedAt = Date.now()
  readonly job: BackgroundJob
  /** Installs programs for requests that do not wait. */
  readonly background: BackgroundReadings
  #nextSearchMs = 0
  #isClosed = false

  constructor(deps: ProgramDeps) {
    this.#deps = deps
    this.#disks = new ProgramDisks(deps, this.#errors, (target) => this.#backoff.failed(nameOf(target)))
    this.background = new BackgroundReadings(deps.log)
    this.job = new BackgroundJob({
      everyMs: sweepMs,
      work: () => this.sweep(),
      // While no runner is connected, it refuses.
      onFault: (error) => error instanceof Refusal || (deps.log && fault(error, deps.log)),
    })
  }

  /** Whether a start takes long, since the program must be installed first. */
  mustInstall(target: ProgramTarget): Promise<boolean> {
    return this.#disks.mustInstall(target)
  }

  /**
   * Starts a process of an upstream, after its sandbox and its installation where they are missing.
   * @throws Refusal `upstream_failed`, `upstream_misconfigured`, `upstream_programs_full`, `limit_reached`, and those of
   * sandboxes.
   */
  async start(target: ProgramTarget): Promise<UpstreamProcess> {
    const name = nameOf(target)
    const waitSeconds = this.#backoff.waitSeconds(name)
    if (waitSeconds > 0) {
      const problem = `its program ended ${this.#backoff.count(name)} times in a row${this.#errors.installerWords(target)}`
      throw new Refusal('upstream_failed', { upstream: target.name, problem, retryAfterSeconds: waitSeconds })
    }
    return this.#turns.run(name, async () => {
      if (this.#isClosed) throw new Refusal('unavailable', { reason: 'the server is stopping' })
      try {
        return await this.#execute(name, await this.#open(name, target), target)
      } catch (error) {
        const running = this.#running.get(name)
        if (!(error instanceof Refusal) || !crashes.includes(error.code) || running === undefined) throw error
        // The sandbox has crashed, or the runner was restarted.
        await this.#stop(name, running)
        return this.#execute(name, await this.#open(name, target), target)
      }
    })
  }

  /** Returns the latest standard error of an upstream, without its secrets. */
  stderrOf(target: ProgramTarget): string {
    return this.#errors.textOf(target)
  }

  /** Returns the number of lines that its processes have written to standard output and that were no messages. */
  skippedLinesOf({ id }: ProgramTarget): number {
    return this.#errors.skippedLinesOf(id)
  }

  /** Lists upstreams whose program has ended by itself within this time, with how often in a row, most often first. */
  crashing(withinMs: number): { upstreamId: string; crashes: number }[] {
    return this.#backoff
      .recent(withinMs)
      .map(({ name, count }) => ({ upstreamId: name.split(' ')[0]!, crashes: count }))
  }

  /** Lists what runs. */
  list(): ProgramStatus[] {
    return [...this.#running.values()].map(({ row: { upstreamId, orgId }, processes, startedMs }) => ({
      ...{ upstreamId, orgId, processes: processes.size, uptimeMs: monotonicMs() - startedMs },
      skippedLines: this.#errors.skippedLinesOf(upstreamId),
    }))
  }

  /** Removes and stops what no upstream needs any more, and what has reached its time. */
  async sweep(): Promise<void> {
    const { store, runner } = this.#deps
    for (const orphan of await store.upstreamSandboxes.orphans()) {
      // Also ends its installation, which would take its turn.
      await this.#stopOnRunner(orphan.id)
      await this.#turns.run(nameOfRow(orphan), async () => {
        this.#running.delete(nameOfRow(orphan))
        await runner.remove(orphan.orgId, orphan.id)
        await store.upstreamSandboxes.remove(orphan.id)
      })
      this.#errors.forget({ id: orphan.upstreamId, credentialOf: orphan.keyId })
    }
    const nowMs = monotonicMs()
    if (nowMs >= this.#nextSearchMs) {
      await this.#stopAbandoned()
      this.#nextSearchMs = nowMs + searchEveryMs
    }
    for (const { upstreamId, sandboxId } of [...this.#opening.values()]) {
      const isWanted = (await store.upstreams.byId(upstreamId))?.enabled === 1
      if (!isWanted && sandboxId !== undefined) await this.#stopOnRunner(sandboxId)
    }
    const changed = await this.#changed()
    for (const [name, running] of [...this.#running]) {
      const isResting = running.processes.size === 0 && nowMs - running.restingSinceMs >= restMs
      const isOver = nowMs - running.startedMs >= running.lifetimeMs
      if (isOver) this.#deps.metrics?.program('lifetime')
      if (isResting || isOver || changed.has(name)) await this.#turns.run(name, () => this.#stop(name, running))
    }
    this.#deps.metrics?.programs(this.#running.size)
  }

  /** Stops everything that this object has started. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#disks.close()
    await this.job.stop()
    const all = [...this.#running]
    await Promise.all(all.map(([name, running]) => this.#turns.run(name, () => this.#stop(name, running))))
  }

  /**
   * Stops what an earlier front has left running, since its sessions ended with it, and what a command that was killed has.
   * Another front, or a command, may have just started what is not known here.
   */
  async #stopAbandoned(): Promise<void> {
    const { store, runner } = this.#deps
    const ids = new Set((await store.upstreamSandboxes.list()).map(({ id }) => id))
    const known = new Set([...this.#running.values()].map(({ row }) => row.id))
    for (const { sandboxId, startedAt } of await runner.list()) {
      const isAbandoned = startedAt < this.#openedAt || Date.now() - startedAt > foreignMaxMs
      if (ids.has(sandboxId) && !known.has(sandboxId) && isAbandoned) await this.#stopOnRunner(sandboxId)
    }
  }

  /** Returns the names of running sandboxes whose upstream is disabled, or runs another program than they do. */
  async #changed(): Promise<Set<string>> {
    const changed = new Set<string>()
    for (const [name, { row, fingerprint }] of this.#running) {
      const upstream = await this.#deps.store.upstreams.byId(row.upstreamId)
      const isSame = upstream?.enabled === 1 && fingerprint.startsWith(`${upstream.program} `)
      if (!isSame) changed.add(name)
    }
    return changed
  }

  async #open(name: string, target: ProgramTarget): Promise<Running> {
    const known = this.#running.get(name)
    if (known?.fingerprint === fingerprintOf(target)) return known
    if (known) await this.#stop(name, known)
    await this.#makeRoom(target)
    const opening: Opening = { orgId: target.orgId, upstreamId: target.id }
    this.#opening.set(name, opening)
    try {
      const row = await this.#disks.rowOf(target)
      opening.sandboxId = row.id
      await this.#disks.install(row, target)
      const credential = openCredential(target, this.#nextValue(target), this.#deps.packages)
      await this.#disks.start(target, toProgramSpec(row, target.program, credential.network))
      return this.#opened(name, target, row, credential)
    } finally {
      this.#opening.delete(name)
    }
  }

  #opened(name: string, target: ProgramTarget, row: UpstreamSandboxRow, credential: OpenedCredential): Running {
    const nowMs = monotonicMs()
    const running: Running = {
      ...{ row, credential, fingerprint: fingerprintOf(target), processes: new Set<UpstreamProcess>() },
      ...{ startedMs: nowMs, restingSinceMs: nowMs, lifetimeMs: target.program.lifetimeMs },
    }
    this.#running.set(name, running)
    this.#deps.metrics?.programs(this.#running.size)
    return running
  }

  /** Ends a sandbox without processes if the limits are reached. @throws Refusal `upstream_programs_full`. */
  async #makeRoom({ orgId, name }: ProgramTarget): Promise<void> {
    const { max, perOrg } = this.#deps.limits
    for (const [scope, limit, isCounted] of [
      ['organization', perOrg, (of: string) => of === orgId],
      ['instance', max, () => true],
    ] as const) {
      const counted = [...this.#running].filter(([, { row }]) => isCounted(row.orgId))
      const opening = [...this.#opening.values()].filter((one) => isCounted(one.orgId))
      if (counted.length + opening.length < limit) continue
      const resting = counted.find(([, { processes }]) => processes.size === 0)
      if (resting === undefined) throw full(name, scope, limit)
      await this.#stop(...resting)
    }
  }

  async #execute(name: string, running: Running, target: ProgramTarget): Promise<UpstreamProcess> {
    const { id, program } = target
    const { runner, metrics } = this.#deps
    if (running.processes.size >= processesMax) throw full(target.name, 'upstream', processesMax)
    const isOffline = installOf(program) !== null && program.network.policy !== 'packages'
    const spec = {
      argv: [program.command, ...program.args],
      env: { ...(isOffline && offlineEnv), ...running.credential.env },
      ...{ stdin: true, keepBytes },
    }
    const { status, events } = await runner.processes.startFollowed(running.row.id, spec)
    if (status.ending?.kind === 'not_started') {
      await events.return?.()
      const problem = `its program ${problemOf(status.ending)}`
      throw new Refusal('upstream_misconfigured', { upstream: target.name, problem })
    }
    metrics?.program(this.#backoff.count(name) > 0 ? 'restart' : 'start')
    const startedMs = monotonicMs()
    const place = { sandboxId: running.row.id, processId: status.processId }
    const errors = this.#errors.of(target)
    const process = new ProgramProcess(runner.processes, place, events, errors)
    process.onEnd = (ending, isKilled) => {
      running.processes.delete(process)
      running.restingSinceMs = monotonicMs()
      if (isKilled) this.#backoff.ended(name)
      if (isKilled || ending === undefined || ending.kind === 'sandbox_ended') return 'was stopped'
      metrics?.program('crash')
      this.#backoff.crashed(name, monotonicMs() - startedMs)
      return problemOf(ending) + errors.lastWords()
    }
    process.countSkippedLine = () => {
      this.#errors.countSkippedLine(id)
      metrics?.program('skipped_line')
    }
    running.processes.add(process)
    return process
  }

  async #stop(name: string, running: Running): Promise<void> {
    if (this.#running.get(name) === running) this.#running.delete(name)
    const { id } = running.row
    if (await this.#disks.isInstalledByAnother(id)) return
    if ((await this.#deps.mayStop?.(id)) !== false) await this.#stopOnRunner(id)
  }

  async #stopOnRunner(sandboxId: string): Promise<void> {
    await this.#deps.runner.stop(sandboxId, 0).catch(ignoreRefusal)
  }

  #nextValue({ id, name, credentialOf, secrets: { credential } }: ProgramTarget): string | undefined {
    if (credential === null) return undefined
    const turn = this.#turnOf.get(`${id} ${credentialOf}`) ?? 0
    const value = credential.values[turn % Math.max(credential.values.length, 1)]
    if (value === undefined || value === '') {
      throw new Refusal('upstream_misconfigured', { upstream: name, problem: 'its credential has no value' })
    }
    this.#turnOf.set(`${id} ${credentialOf}`, turn + 1)
    return value
  }
}

/** What a limit of programs is counted over. */
export type ProgramScope = 'upstream' | 'organization' | 'instance'

const counted: Record<ProgramScope, string> = {
  upstream: 'sessions of this server',
  organization: 'programs of this organization',
  instance: 'programs',
}

const full = (upstream: string, scope: ProgramScope, limit: number): Refusal =>
  new Refusal('upstream_programs_full', { upstream, scope, limit, what: counted[scope], retryAfterSeconds })

/** The credential of a login changes its row, not its value here. */
const fingerprintOf = ({ programText, secrets }: ProgramTarget): string =>
  `${programText} ${JSON.stringify([secrets.env, secrets.credential])}`

const nameOf = ({ id, credentialOf }: ProgramTarget): string => `${id} ${credentialOf}`
const nameOfRow = ({ upstreamId, keyId }: UpstreamSandboxRow): string => `${upstreamId} ${keyId}`
