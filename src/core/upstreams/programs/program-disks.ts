import { setTimeout as sleep } from 'node:timers/promises'
import { timestamp } from '../../../base/clock.ts'
import { Refusal } from '../../../base/errors.ts'
import { newSandboxId } from '../../../base/ids.ts'
import type { SandboxSpec } from '../../../base/sandbox.ts'
import type { UpstreamSandboxRow } from '../../../store/upstream-sandboxes.ts'
import { InstallTurns } from './install-turns.ts'
import { reported } from './installations.ts'
import { installationOf, installOf } from './program.ts'
import type { ProgramDeps } from './program-deps.ts'
import type { ProgramErrors } from './program-errors.ts'
import { ignoreRefusal, problemOf, runInstallation, withoutStop } from './program-process.ts'
import { type ProgramTarget, toProgramSpec } from './sandbox-spec.ts'

/** The disks of upstream programs: their rows, and what is installed on them. */
export class ProgramDisks {
  readonly #deps: ProgramDeps
  readonly #errors: ProgramErrors
  readonly #onFailure: (target: ProgramTarget) => void
  readonly #turns: InstallTurns

  /** @param onFailure called when an installation has failed. */
  constructor(deps: ProgramDeps, errors: ProgramErrors, onFailure: (target: ProgramTarget) => void) {
    this.#deps = deps
    this.#errors = errors
    this.#onFailure = onFailure
    this.#turns = new InstallTurns(deps.store.upstreamSandboxes)
  }

  /** Returns whether another process installs a program in a sandbox, which must not be stopped then. */
  isInstalledByAnother(sandboxId: string): Promise<boolean> {
    return this.#turns.isOfAnother(sandboxId)
  }

  /** Ends the waiting for other processes. */
  close(): void {
    this.#turns.close()
  }

  /** Whether a program is not installed yet, or another version of it is. */
  async mustInstall({ id, credentialOf, program }: ProgramTarget): Promise<boolean> {
    if (installOf(program) === null) return false
    const row = await this.#deps.store.upstreamSandboxes.get(id, credentialOf)
    return row?.installed !== installationOf(program)
  }

  /** Returns the row of a sandbox, and creates it if it does not exist. @throws Refusal limit_reached, upstream_misconfigured. */
  async rowOf(target: ProgramTarget): Promise<UpstreamSandboxRow> {
    this.#checkLimits(target)
    const { id: upstreamId, orgId, credentialOf: keyId, program } = target
    const { upstreamSandboxes } = this.#deps.store
    const known = await upstreamSandboxes.get(upstreamId, keyId)
    if (known !== undefined) {
      if (known.quotaBytes >= program.diskBytes) return known
      await upstreamSandboxes.update(known.id, { quotaBytes: program.diskBytes })
      return { ...known, quotaBytes: program.diskBytes }
    }
    const row: UpstreamSandboxRow = {
      ...{ id: newSandboxId(), orgId, upstreamId, keyId, quotaBytes: program.diskBytes },
      ...{ installed: null, createdAt: timestamp(), installer: null, installerUntil: null, installation: null },
    }
    if (await upstreamSandboxes.create(row)) return row
    // Another process created it meanwhile.
    return (await upstreamSandboxes.get(upstreamId, keyId)) ?? row
  }

  /**
   * Installs the program, in its sandbox while that has the network of package managers and no credential. Does nothing
   * if it is installed; waits while another process installs it.
   * @throws Refusal `upstream_failed` with the end of the output, `unavailable`, and those of `start`.
   */
  async install({ id, installed }: UpstreamSandboxRow, target: ProgramTarget): Promise<void> {
    const argv = installOf(target.program)
    const installation = installationOf(target.program)
    if (argv === null || installed === installation) return
    await this.#turns.run(id, async (row) => {
      if (row.installed === installation) return
      const { upstreamSandboxes } = this.#deps.store
      const output = () => this.#errors.textOf(target)
      await reported(upstreamSandboxes, id, output, async () => {
        await this.#install(row, target, argv)
        await upstreamSandboxes.update(id, { installed: installation })
      })
    })
  }

  async #install(row: UpstreamSandboxRow, target: ProgramTarget, argv: readonly string[]): Promise<void> {
    const { runner, metrics, packages } = this.#deps
    // It may still run an earlier version, or an installation whose process was killed.
    await runner.stop(row.id, 0).catch(ignoreRefusal)
    await this.start(target, toProgramSpec(row, target.program, packages))
    try {
      const errors = this.#errors.of(target)
      const ending = await runInstallation(runner.processes, row.id, argv, errors)
      if (ending?.kind !== 'exited' || ending.code !== 0) {
        metrics?.program('failed_install')
        this.#onFailure(target)
        const words = errors.lastWords()
        this.#errors.installed(target, words)
        const cause = `${problemOf(ending)}${words}`
        const problem = `it could not be installed: ${argv.join(' ')} ${cause}`
        throw new Refusal('upstream_failed', { upstream: target.name, problem })
      }
      this.#errors.installed(target, '')
      metrics?.program('install')
    } finally {
      // The program is started with another network, which is that of its sandbox.
      await runner.stop(row.id, 0).catch(ignoreRefusal)
    }
  }

  #checkLimits({ name: upstream, program: { memoryBytes, diskBytes } }: ProgramTarget): void {
    const { limits } = this.#deps
    const isOver = memoryBytes > limits.memoryBytes ? 'memory' : diskBytes > limits.diskBytes ? 'disk' : undefined
    if (isOver === undefined) return
    const limit = isOver === 'memory' ? limits.memoryBytes : limits.diskBytes
    const problem = `its ${isOver} is more than the ${limit} bytes of upstream_program_${isOver}`
    throw new Refusal('upstream_misconfigured', { upstream, problem })
  }

  /** Starts a sandbox. @throws Refusal `upstream_misconfigured` if its image does not exist, and those of the runner. */
  async start({ name: upstream }: ProgramTarget, spec: SandboxSpec): Promise<void> {
    for (let attempts = 1; ; attempts++) {
      try {
        await this.#deps.runner.start(spec)
        return
      } catch (error) {
        if (!(error instanceof Refusal)) throw error
        if (error.code === 'image_unknown') {
          throw new Refusal('upstream_misconfigured', { upstream, problem: withoutStop(error.message) })
        }
        // A command and the server use the same sandbox: the other one is about to stop it.
        if (error.code !== 'sandbox_busy' || attempts === startAttempts) throw error
        await sleep(busyMs)
      }
    }
  }
}

/** A sandbox that is being stopped is started again this often, within 15 s. */
const startAttempts = 150
const busyMs = 100
