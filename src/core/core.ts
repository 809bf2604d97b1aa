import { timestamp } from '../base/clock.ts'
import type { Profile } from '../base/profile.ts'
import type { Log } from '../observe/log.ts'
import type { Runner } from '../runner/messages.ts'
import type { Store } from '../store/store.ts'
import type { Caller } from './caller.ts'
import { type ExecuteEvent, execute } from './execute.ts'
import { Keys } from './keys.ts'
import type { ExecuteRequest } from './request.ts'
import { Runs } from './runs.ts'

/** What the product does. Every verb takes the caller and decides what that caller may do. */
export interface Core {
  /** Runs code; see `execute`. */
  execute(caller: Caller, request: ExecuteRequest, signal: AbortSignal): AsyncGenerator<ExecuteEvent, void, undefined>

  /** @throws Refusal `run_unknown` (also for a run of another org), `run_finished`. */
  cancel(caller: Caller, runId: string): Promise<void>

  /** Whether a run could start now, and if not, why. */
  readonly readiness: Runner['readiness']

  /**
   * The caller that a key belongs to.
   * @throws Refusal `unauthorized` (never was, or is revoked), `profile_gone`.
   */
  authenticate(secret: string): Promise<Caller>

  /** The caller of dev mode: one org, one key without a secret, the profile named `default`. Makes its rows. */
  developer(): Promise<Caller>

  /**
   * Settles every run that has no ending and that nobody follows. Happens by itself when another life of a runner
   * appears; to be called when the same one is reached again.
   */
  recover(): Promise<void>

  /**
   * Takes no further run. `shutdown`: waits up to `graceMs` for the runs followed here, then ends those that are left
   * and waits for their endings; `leave`: leaves them to the runner and to the next front.
   */
  close(runs: 'shutdown' | 'leave', graceMs: number): Promise<void>
}

export interface CoreRooms {
  store: Store
  runner: Runner
  /** One of them is named `default`. */
  profiles: readonly Profile[]
  log: Log
}

/** Builds core, writes the profiles as they are now, and recovers what an earlier front left. */
export async function createCore({ store, runner, profiles, log }: CoreRooms): Promise<Core> {
  const runs = new Runs(store, runner, log)
  for (const profile of profiles) await store.profiles.ensure(toRow(profile))
  const keys = new Keys(store, runner, profiles, log)
  await runs.startWatching()
  keys.startWatching()
  return {
    execute: (caller, request, signal) => execute(runs, runner, caller, request, signal),
    cancel: (caller, runId) => runs.cancel(caller, runId),
    get readiness() {
      return runner.readiness
    },
    authenticate: (secret) => keys.authenticate(secret),
    developer: () => developer(store, profiles),
    recover: () => runs.recover(),
    close: async (what, graceMs) => {
      await keys.stop()
      await runs.stop(what, graceMs)
    },
  }
}

async function developer(store: Store, profiles: readonly Profile[]): Promise<Caller> {
  const profile = profiles.find(({ name }) => name === 'default')
  if (profile === undefined) throw new Error('no profile is named default')
  const createdAt = timestamp()
  await store.orgs.ensure({ id: 'org_dev', name: 'Development', createdAt })
  await store.keys.ensure({
    id: 'key_dev',
    orgId: 'org_dev',
    name: 'development without a key',
    profile: profile.name,
    secretHash: null,
    prefix: null,
    createdAt,
    revokedAt: null,
    retiredAt: null,
  })
  return { orgId: 'org_dev', keyId: 'key_dev', profile }
}

/** Values of variables may be secrets: the row keeps their names only. */
function toRow(profile: Profile) {
  const definition = JSON.stringify({ ...profile, env: Object.keys(profile.env) })
  return { name: profile.name, revision: profile.revision, definition, createdAt: timestamp() }
}
