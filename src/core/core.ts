import { timestamp } from '../base/clock.ts'
import { Refusal } from '../base/errors.ts'
import type { Profile } from '../base/profile.ts'
import type { RunEvent } from '../base/run.ts'
import { fault, type Log } from '../observe/log.ts'
import type { Metrics, RunnerFigures } from '../observe/metrics.ts'
import type { Runner, RunnerFiles } from '../runner/protocol/messages.ts'
import type { RunRow, Store } from '../store/store.ts'
import { HiddenTools } from './access/hidden-tools.ts'
import { noVariables } from './access/key-env.ts'
import { Keys, keyWithoutSecret } from './access/keys.ts'
import { ensureSecret } from './access/master-key.ts'
import { Profiles, type ReadProfile, toProfileRow } from './access/profiles.ts'
import { newSealingSecret, Sealing } from './access/sealing.ts'
import { UsageLimiter } from './access/usage-limiter.ts'
import type { Vault } from './access/vault.ts'
import type { Admin, Administered } from './admin/admin.ts'
import { authenticateAdmin } from './admin/tokens.ts'
import type { Caller } from './caller.ts'
import { RetentionJob } from './jobs/retention-job.ts'
import { StorageMaintenance } from './jobs/storage-maintenance.ts'
import { type WebhookDeps, Webhooks } from './jobs/webhooks.ts'
import type { Page } from './paging.ts'
import { type ExecuteEvent, execute } from './runs/execute.ts'
import { type Execution, look } from './runs/executions.ts'
import { followRun, type HistoryQuery, type RecordedRun, recordedRun, runsOf } from './runs/history.ts'
import type { ExecuteRequest } from './runs/request.ts'
import { Runs } from './runs/runs.ts'
import { Tasks } from './runs/tasks.ts'
import { Files } from './storage/files.ts'
import { type Link, newLinkSecret, SignedLinks } from './storage/signed-links.ts'
import { StoredThreads } from './storage/threads.ts'
import { Volumes } from './storage/volumes.ts'

/** What the product does. Every verb takes the caller and decides what that caller may do. */
export interface Core {
  /** Runs code; see `execute`. */
  execute(caller: Caller, request: ExecuteRequest, signal: AbortSignal): AsyncGenerator<ExecuteEvent, void, undefined>

  /**
   * Lets a run go on when this front is gone: for who was told that it can be asked for later.
   * @throws Refusal `run_unknown` (also for a run of another org).
   */
  outlive(caller: Caller, runId: string): Promise<void>

  /** Reads a run to its end for its row alone; nobody waits for it. */
  leave(events: AsyncGenerator<ExecuteEvent, void, undefined>): void

  /** @throws Refusal `run_unknown` (also for a run of another org), `run_finished`. */
  cancel(caller: Caller, runId: string): Promise<void>

  /**
   * A run as it is now, or once it has ended; see `look`.
   * @throws Refusal `run_unknown` (also for a run of another org).
   */
  look(caller: Caller, runId: string, waiting: { waitMs: number; signal: AbortSignal }): Promise<Execution>

  /** Files of threads and volumes. */
  readonly files: Files

  /** Links to files that need no key. */
  readonly links: SignedLinks

  /** Who made a link, as long as that one's key lives. @throws Refusal `link_invalid`. */
  callerOfLink(link: Link): Promise<Caller>

  /**
   * A run with all that is kept of it.
   * @throws Refusal `run_unknown` (also for a run of another org).
   */
  execution(caller: Caller, runId: string): Promise<RecordedRun>

  /** Runs of the caller's org, newest first. @throws Refusal `invalid_argument`. */
  executions(caller: Caller, query: HistoryQuery): Promise<Page<RunRow>>

  /** Tells a run from its beginning to its end; see `followRun`. */
  follow(caller: Caller, runId: string, signal: AbortSignal): AsyncGenerator<RunEvent, void, undefined>

  /** Threads beside the runs that use them. */
  readonly threads: StoredThreads

  /** The volumes that the caller's profile mounts. */
  readonly volumes: Volumes

  /** The tools that the caller's org has switched off; within a second of the switch. */
  hiddenTools(caller: Caller): Promise<readonly string[]>

  /** Calls whose outcome is asked for later. */
  readonly tasks: Tasks

  /** Seals what clients keep for us. */
  readonly sealing: Sealing

  /** What the runner tells of itself; `undefined` while none is connected. */
  figures(): Promise<RunnerFigures | undefined>

  /** Whether a run could start now, and if not, why. */
  readonly readiness: Runner['readiness']

  /**
   * The caller that a key belongs to.
   * @throws Refusal `unauthorized` (never was, or is revoked), `profile_gone`.
   */
  authenticate(secret: string): Promise<Caller>

  /**
   * Who administers by this token.
   * @throws Refusal `unauthorized`.
   */
  authenticateAdmin(secret: string): Promise<Admin>

  /** Files of threads, for what concerns no caller. */
  readonly threadFiles: RunnerFiles

  /** What the verbs of `core/admin/` work on. */
  readonly administered: Administered

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

export interface CoreDeps {
  store: Store
  runner: Runner
  /** One of them is named `default`. */
  profiles: readonly Profile[]
  readProfile: ReadProfile
  /** Opens what is secret in the rows. */
  vault: Vault
  /** Stands in new keys. */
  region: string
  /** How long the rows of runs are kept. */
  runHistoryMs: number
  /** Told of every run. */
  metrics: Metrics
  /** How endings are told to addresses of clients. */
  webhooks: Pick<WebhookDeps, 'outbound' | 'toBody'>
  log: Log
}

/** Builds core, writes the profiles as they are now, and recovers what an earlier front left. */
export async function createCore({ store, runner, metrics, log, ...rooms }: CoreDeps): Promise<Core> {
  const webhooks = new Webhooks({ store, vault: rooms.vault, ...rooms.webhooks, log })
  const runs = new Runs({ store, runner, allowances: new UsageLimiter(store), webhooks, metrics, log })
  for (const profile of rooms.profiles) await store.profiles.ensure(toProfileRow(profile))
  const { vault, region } = rooms
  const profiles = new Profiles(store, vault, rooms.profiles, rooms.readProfile)
  const keys = new Keys({ store, runner, profiles, vault, log })
  const sealing = new Sealing(await ensureSecret(store, vault, 'sealing_of_states', newSealingSecret()))
  const hidden = new HiddenTools(store)
  const forgetting = new RetentionJob(store, rooms.runHistoryMs, log)
  const threads = new StoredThreads(store, runner)
  const volumes = new Volumes(store, runner)
  const upkeep = new StorageMaintenance(threads, volumes, profiles, log)
  await runs.startWatching()
  keys.startWatching()
  upkeep.start()
  webhooks.start()
  return {
    execute: (caller, request, signal) => execute(store, runs, runner, caller, request, signal),
    outlive: (caller, runId) => runs.outlive(caller, runId),
    leave: (events) => void drain(events).catch((error: unknown) => fault(error, log)),
    cancel: (caller, runId) => runs.cancel(caller, runId),
    look: (caller, runId, waiting) => look(store, runner, caller, runId, waiting),
    threadFiles: runner.files,
    files: new Files(store, runner, volumes),
    links: new SignedLinks(store, await ensureSecret(store, vault, 'signing_of_links', newLinkSecret())),
    callerOfLink: ({ keyId }) => keys.callerOf(keyId),
    execution: (caller, runId) => recordedRun(store, caller, runId),
    executions: (caller, query) => runsOf(store, caller, query),
    follow: (caller, runId, signal) => followRun(store, runner, caller, runId, signal),
    tasks: new Tasks(store),
    hiddenTools: (caller) => hidden.of(caller),
    sealing,
    figures: () => figures(runner),
    get readiness() {
      return runner.readiness
    },
    authenticate: (secret) => keys.authenticate(secret),
    authenticateAdmin: (secret) => authenticateAdmin(store, secret),
    administered: { store, vault, profiles, region, runner },
    threads,
    volumes,
    developer: () => developer(store, rooms.profiles),
    recover: () => runs.recover(),
    close: async (what, graceMs) => {
      await forgetting.stop()
      await upkeep.stop()
      await keys.stop()
      await runs.stop(what, graceMs)
      await webhooks.stop()
    },
  }
}

async function figures(runner: Runner): Promise<RunnerFigures | undefined> {
  try {
    return await runner.stats()
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    return undefined
  }
}

async function drain(events: AsyncGenerator<ExecuteEvent, void, undefined>): Promise<void> {
  for await (const _ of events);
}

async function developer(store: Store, profiles: readonly Profile[]): Promise<Caller> {
  const profile = profiles.find(({ name }) => name === 'default')
  if (profile === undefined) throw new Error('no profile is named default')
  const createdAt = timestamp()
  await store.orgs.ensure({ id: 'org_dev', name: 'Development', createdAt })
  const named = { orgId: 'org_dev', profile: profile.name, name: 'development without a key' }
  await store.keys.ensure(keyWithoutSecret('key_dev', named))
  return { orgId: 'org_dev', keyId: 'key_dev', profile, env: noVariables, tools: null }
}
