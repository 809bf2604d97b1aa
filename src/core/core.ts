import type { Capability } from '../base/capabilities.ts'
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
import { OpenRequests, type RequestLimits } from './access/open-requests.ts'
import { Profiles, type ReadProfile, toProfileRow } from './access/profiles.ts'
import { type Guarded, type GuardedNoun, Rights, type ToolGrant } from './access/rights.ts'
import { newSealingSecret, Sealing } from './access/sealing.ts'
import { UsageLimiter } from './access/usage-limiter.ts'
import type { Vault } from './access/vault.ts'
import type { Admin, AdminContext } from './admin/admin.ts'
import { authenticateAdmin } from './admin/tokens.ts'
import type { InspectUpstream } from './admin/upstreams.ts'
import type { Caller } from './caller.ts'
import { databaseWatch } from './jobs/database-watch.ts'
import { RetentionJob } from './jobs/retention-job.ts'
import { StorageMaintenance } from './jobs/storage-maintenance.ts'
import { type WebhookDeps, Webhooks } from './jobs/webhooks.ts'
import type { Page } from './paging.ts'
import { execute } from './runs/execute.ts'
import type { ExecuteEvent } from './runs/execute-event.ts'
import { type Execution, waitForExecution } from './runs/executions.ts'
import { followRun, type HistoryQuery, type RecordedRun, recordedRun, runsOf } from './runs/history.ts'
import type { ExecuteRequest } from './runs/request.ts'
import { Runs } from './runs/runs.ts'
import { Tasks, taskNeeds } from './runs/tasks.ts'
import { Files, fileNeeds } from './storage/files.ts'
import { type Link, linkNeeds, newLinkSecret, SignedLinks } from './storage/signed-links.ts'
import { Threads, threadNeeds } from './storage/threads.ts'
import { TransferPlaces } from './storage/transfer-places.ts'
import { Volumes, volumeNeeds } from './storage/volumes.ts'
import { Upstreams, upstreamNeeds } from './upstreams/upstreams.ts'
import { type UpstreamCall, UpstreamUsage } from './upstreams/usage.ts'

/**
 * The operations of the product. An operation takes the caller and checks its rights; see `Rights`. Operations that require
 * no right take no caller, or return data of the caller itself.
 */
export interface Core {
  /** Runs code; see `execute`. */
  readonly execute: Guarded<
    (caller: Caller, request: ExecuteRequest, signal: AbortSignal) => AsyncGenerator<ExecuteEvent, void, undefined>
  >

  /**
   * Detaches a run, so that it continues when this process ends. Its client can query it later.
   * @throws Refusal `run_unknown` (also for a run of another organization).
   */
  readonly detach: Guarded<(caller: Caller, runId: string) => Promise<void>>

  /** Reads the events of a run to its end in the background, so that its ending is written. */
  drainInBackground(events: AsyncGenerator<ExecuteEvent, void, undefined>): void

  /** Cancels a run. @throws Refusal `run_unknown` (also for a run of another organization), `run_finished`. */
  readonly cancel: Guarded<(caller: Caller, runId: string) => Promise<void>>

  /**
   * Returns a run as it is now, or once it has ended; see `waitForExecution`.
   * @throws Refusal `run_unknown` (also for a run of another organization).
   */
  readonly waitForExecution: Guarded<
    (caller: Caller, runId: string, waiting: { waitMs: number; signal: AbortSignal }) => Promise<Execution>
  >

  /**
   * Returns a run with all of its stored data.
   * @throws Refusal `run_unknown` (also for a run of another organization).
   */
  readonly execution: Guarded<(caller: Caller, runId: string) => Promise<RecordedRun>>

  /** Lists the runs of the caller's organization, newest first. @throws Refusal `invalid_argument`. */
  readonly executions: Guarded<(caller: Caller, query: HistoryQuery) => Promise<Page<RunRow>>>

  /** Yields the events of a run from its beginning to its end; see `followRun`. */
  readonly follow: Guarded<
    (caller: Caller, runId: string, signal: AbortSignal) => AsyncGenerator<RunEvent, void, undefined>
  >

  /** Files of threads and volumes. */
  readonly files: GuardedNoun<Files, typeof fileNeeds>

  /** Signed links to files, which work without a key. */
  readonly links: GuardedNoun<SignedLinks, typeof linkNeeds> & Pick<SignedLinks, 'read' | 'use' | 'giveBack'>

  /** Returns the caller whose key created a link. @throws Refusal `link_invalid` when the key is no longer valid. */
  callerOfLink(link: Link): Promise<Caller>

  /** Threads, apart from the runs that use them. */
  readonly threads: GuardedNoun<Threads, typeof threadNeeds>

  /** The volumes that the caller's profile mounts. */
  readonly volumes: GuardedNoun<Volumes, typeof volumeNeeds>

  /** MCP servers behind the gateway. */
  readonly upstreams: GuardedNoun<Upstreams, typeof upstreamNeeds>

  /** Counts a call of an upstream that the caller has made. */
  countUpstreamCall(caller: Caller, call: UpstreamCall): void

  /** The open requests of keys; see `OpenRequests`. */
  readonly openRequests: Pick<OpenRequests, 'open' | 'usage'>

  /** Checks that the caller has a capability. @throws Refusal `permission_denied`. */
  requireCapability(caller: Caller, capability: Capability): Promise<void>

  /** Returns the tools that are hidden from the caller's organization. A change takes effect within a second. */
  hiddenTools(caller: Caller): Promise<readonly string[]>

  /** Calls whose result is fetched later. */
  readonly tasks: GuardedNoun<Tasks, typeof taskNeeds> & Pick<Tasks, 'isOrphan' | 'settle'>

  /** Seals state that clients keep between two requests. */
  readonly sealing: Sealing

  /** Returns the metrics of the runner; `undefined` while none is connected. */
  figures(): Promise<RunnerFigures | undefined>

  /** Whether a run can start now; otherwise the reason. */
  readonly readiness: Runner['readiness']

  /** The software in the image of the runner; nothing until a runner has connected. */
  readonly software: Runner['software']

  /**
   * Returns the caller that a key belongs to.
   * @throws Refusal `unauthorized` (unknown, expired or revoked), `profile_gone`.
   */
  authenticate(secret: string): Promise<Caller>

  /**
   * Returns the administrator that a token belongs to.
   * @throws Refusal `unauthorized`.
   */
  authenticateAdmin(secret: string): Promise<Admin>

  /** Files of threads, for administration. */
  readonly threadFiles: RunnerFiles

  /** The dependencies of the functions in `src/core/admin/`. */
  readonly adminContext: AdminContext

  /**
   * Returns the caller of development mode and creates its rows: one organization, one key without a secret, the
   * profile named `default`.
   */
  developer(): Promise<Caller>

  /**
   * Gives an ending to every run that has none and that no process follows. This happens automatically when a new runner
   * process connects; the method must be called when the same process reconnects.
   */
  recover(): Promise<void>

  /**
   * Stops accepting runs. `shutdown` waits up to `graceMs` for the runs followed here, then ends the rest and waits for
   * their endings; `leave` leaves them to the runner and to the next front.
   */
  close(runs: 'shutdown' | 'leave', graceMs: number): Promise<void>
}

export interface CoreDeps {
  store: Store
  runner: Runner
  /** The profiles of the configuration. One of them is named `default`. */
  profiles: readonly Profile[]
  readProfile: ReadProfile
  /** All tools with the capabilities that they grant. */
  tools: readonly ToolGrant[]
  /** Encrypts and decrypts the secrets in the database. */
  vault: Vault
  /** The `region` setting, which becomes part of new keys. */
  region: string
  /** Retention time of the rows of runs. */
  runHistoryMs: number
  requestLimits: RequestLimits
  /** Counts every run. */
  metrics: Metrics
  /** Sends webhooks and formats their body. */
  webhooks: Pick<WebhookDeps, 'outbound' | 'toBody'>
  /** Connects to an upstream and reads its tools. */
  inspectUpstream: InspectUpstream
  log: Log
}

/** Creates core, writes the rows of the profiles, and recovers the runs of an earlier front. */
export async function createCore({ store, runner, metrics, log, ...deps }: CoreDeps): Promise<Core> {
  const { vault, region } = deps
  for (const profile of deps.profiles) await store.profiles.ensure(toProfileRow(profile))
  const webhooks = new Webhooks({ store, vault, ...deps.webhooks, log })
  const volumes = new Volumes(store, runner)
  const runs = new Runs({ store, runner, volumes, allowances: new UsageLimiter(store), webhooks, metrics, log })
  const profiles = new Profiles(store, vault, deps.profiles, deps.readProfile)
  const keys = new Keys({ store, runner, profiles, vault, log })
  const sealing = new Sealing(await ensureSecret(store, vault, 'sealing_of_states', newSealingSecret()))
  const links = new SignedLinks(store, await ensureSecret(store, vault, 'signing_of_links', newLinkSecret()))
  const hidden = new HiddenTools(store)
  const rights = new Rights(deps.tools, hidden, store)
  const openRequests = new OpenRequests(
    deps.requestLimits,
    (keyId) => keys.callerOf(keyId),
    (error) => fault(error, log),
  )
  const retention = new RetentionJob(store, deps.runHistoryMs, log)
  const threads = new Threads(store, runner)
  const tasks = new Tasks(store)
  const upstreamUsage = new UpstreamUsage(store, log)
  const upstreams = new Upstreams(store, vault, upstreamUsage)
  const maintenance = new StorageMaintenance(threads, volumes, profiles, log)
  // Clients will rely on data that the start created, such as the secret that signs links.
  await store.sync()
  const watch = databaseWatch(store, log)
  watch.start()
  await runs.start()
  keys.startWatching()
  openRequests.start()
  retention.start()
  maintenance.start()
  upstreamUsage.start()
  webhooks.start()
  return {
    ...runVerbs(rights, store, runner, runs),
    drainInBackground: (events) => void drain(events).catch((error: unknown) => fault(error, log)),
    files: rights.noun(
      new Files(store, runner, volumes, new TransferPlaces(deps.requestLimits.transfersPerKey)),
      fileNeeds,
    ),
    links: {
      ...rights.noun(links, linkNeeds),
      read: (token, method) => links.read(token, method),
      use: (link) => links.use(link),
      giveBack: (link) => links.giveBack(link),
    },
    callerOfLink: ({ keyId }) => keys.callerOf(keyId),
    threads: rights.noun(threads, threadNeeds),
    volumes: rights.noun(volumes, volumeNeeds),
    tasks: {
      ...rights.noun(tasks, taskNeeds),
      isOrphan: (task) => tasks.isOrphan(task),
      settle: (id, status, outcome) => tasks.settle(id, status, outcome),
    },
    upstreams: rights.noun(upstreams, upstreamNeeds),
    countUpstreamCall: (caller, call) => upstreamUsage.count(caller, call),
    openRequests,
    requireCapability: (caller, capability) => rights.require(caller, capability),
    hiddenTools: (caller) => hidden.of(caller),
    sealing,
    figures: () => figures(runner),
    get software() {
      return runner.software
    },
    get readiness() {
      const { diskProblem } = store
      if (diskProblem !== undefined) return { ready: false, reason: `the database cannot be written: ${diskProblem}` }
      return runner.readiness.ready && !runs.recovery.isDone ? recovering : runner.readiness
    },
    authenticate: (secret) => keys.authenticate(secret),
    authenticateAdmin: (secret) => authenticateAdmin(store, secret),
    threadFiles: runner.files,
    adminContext: {
      ...{ store, vault, profiles, region, runner },
      outbound: deps.webhooks.outbound,
      inspectUpstream: deps.inspectUpstream,
    },
    developer: () => developer(store, deps.profiles),
    recover: () => runs.recovery.recover(),
    close: async (what, graceMs) => {
      await watch.stop()
      await retention.stop()
      await maintenance.stop()
      await upstreamUsage.stop()
      await keys.stop()
      await openRequests.stop()
      await runs.stop(what, graceMs)
      await webhooks.stop()
    },
  }
}

type RunVerbs = Pick<Core, 'execute' | 'detach' | 'cancel' | 'waitForExecution' | 'execution' | 'executions' | 'follow'>

/** The right to read a run: a capability, or having started the run with the same key. */
const toRead = { capability: 'executions.read', orOwnRun: true } as const
const toCancel = { capability: 'executions.cancel', orOwnRun: true } as const

function runVerbs(rights: Rights, store: Store, runner: Runner, runs: Runs): RunVerbs {
  const deps = { store, runner, endings: runs.endings }
  return {
    execute: rights.stream('execute', (caller, request, signal) =>
      execute(store, runs, runner, caller, request, signal),
    ),
    detach: rights.verb(toCancel, (caller, runId) => runs.detach(caller, runId)),
    cancel: rights.verb(toCancel, (caller, runId) => runs.cancel(caller, runId)),
    waitForExecution: rights.verb(toRead, (caller, runId, waiting) => waitForExecution(deps, caller, runId, waiting)),
    execution: rights.verb(toRead, (caller, runId) => recordedRun(store, caller, runId)),
    executions: rights.verb('executions.read', (caller, query) => runsOf(store, caller, query)),
    follow: rights.stream(toRead, (caller, runId, signal) => followRun(deps, caller, runId, signal)),
  }
}

const recovering = { ready: false, reason: 'runs of before the restart are being recovered' } as const

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
