import type { Timers } from '../base/background-job.ts'
import type { Capability } from '../base/capabilities.ts'
import type { HostWorkspace } from '../base/host-workspace.ts'
import { InTurn } from '../base/in-turn.ts'
import type { Profile } from '../base/profile.ts'
import type { RegisteredSecret } from '../base/redaction/registered.ts'
import type { Software } from '../base/software.ts'
import { fault, type Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { Tracing } from '../observe/tracing.ts'
import type { Runner, RunnerFiles } from '../runner/protocol/messages.ts'
import type { Store } from '../store/store.ts'
import { developer } from './access/developer.ts'
import { HiddenTools } from './access/hidden-tools.ts'
import { Keys } from './access/keys.ts'
import { ensureSecret } from './access/master-key.ts'
import { NetworkSecrets } from './access/network-secrets.ts'
import { OpenRequests, type RequestLimits } from './access/open-requests.ts'
import { Profiles, type ReadProfile, toProfileRow } from './access/profiles.ts'
import { RegisteredSecretsOfOrgs } from './access/registered-secrets.ts'
import { type GuardedNoun, Rights, type ToolGrant } from './access/rights.ts'
import { newSealingSecret, Sealing } from './access/sealing.ts'
import { UsageLimiter } from './access/usage-limiter.ts'
import type { Vault } from './access/vault.ts'
import type { Admin, AdminContext } from './admin/admin.ts'
import { authenticateAdmin } from './admin/tokens.ts'
import { UpstreamRefresher } from './admin/upstream-refresher.ts'
import type { InspectUpstream } from './admin/upstreams.ts'
import type { Caller } from './caller.ts'
import { ImageJobs } from './images/image-jobs.ts'
import { databaseWatch } from './jobs/database-watch.ts'
import { RetentionJob } from './jobs/retention-job.ts'
import { StorageMaintenance } from './jobs/storage-maintenance.ts'
import { observed, type WebhookDeps, Webhooks } from './jobs/webhooks.ts'
import { PackageLayers, type PackageLimits } from './packages/layers.ts'
import { readinessOf } from './readiness.ts'
import type { ExecuteEvent } from './runs/execute-event.ts'
import { RunNetworks } from './runs/run-networks.ts'
import { type RunVerbs, runVerbs } from './runs/run-verbs.ts'
import { Runs } from './runs/runs.ts'
import { Tasks, taskNeeds } from './runs/tasks.ts'
import { toCache } from './runtime/caches.ts'
import { Runtime, type RuntimeFacts } from './runtime/runtime.ts'
import { type SandboxClock, systemClock } from './sandboxes/activity.ts'
import { type SandboxVerbs, sandboxNoun } from './sandboxes/noun.ts'
import type { PreviewLimits } from './sandboxes/ports/traffic.ts'
import { Files, fileNeeds } from './storage/files.ts'
import { type Link, linkNeeds, newLinkSecret, SignedLinks } from './storage/signed-links.ts'
import { ThreadLocks } from './storage/thread-locks.ts'
import { Threads, threadNeeds } from './storage/threads.ts'
import { TransferPlaces } from './storage/transfer-places.ts'
import { Volumes, volumeNeeds } from './storage/volumes.ts'
import type { UpstreamOAuth } from './upstreams/logins.ts'
import { type UpstreamVerbs, upstreamNoun } from './upstreams/noun.ts'
import type { ProgramDeps } from './upstreams/programs/program-deps.ts'
import { Reviews, reviewNeeds } from './workspaces/reviews.ts'
import { SandboxHost } from './workspaces/sandbox-host.ts'
import { type WorkspaceHost, Workspaces, workspaceNeeds } from './workspaces/workspaces.ts'

/**
 * The operations of the product. An operation takes the caller and checks its rights; see `Rights`. Operations that require
 * no right take no caller, or return data of the caller itself.
 */
export interface Core extends RunVerbs, SandboxVerbs, UpstreamVerbs {
  /** Reads the events of a run to its end in the background, so that its ending is written. */
  drainInBackground(events: AsyncGenerator<ExecuteEvent, void, undefined>): void

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

  /** Reads the tools of an upstream again, soon, since it announces that they have changed. */
  announceUpstreamChange(orgId: string, name: string): void

  /** Reads the tools of an upstream that is used again, if this was not done for a while; see `UpstreamRefresher.noteUse`. */
  noteUpstreamUse(orgId: string, name: string, listedAt: string): void

  /** The open requests of keys; see `OpenRequests`. */
  readonly openRequests: Pick<OpenRequests, 'open' | 'usage'>

  /** Directories that coding agents work on. */
  readonly workspaces: GuardedNoun<Workspaces, typeof workspaceNeeds>

  /** Directories of the host that are workspaces, and the changes that are kept for review. */
  readonly reviews: GuardedNoun<Reviews, typeof reviewNeeds>

  /** Checks that the caller has a capability. @throws Refusal `permission_denied`. */
  requireCapability(caller: Caller, capability: Capability): Promise<void>

  /** Returns the tools that are hidden from the caller's organization. A change takes effect within a second. */
  hiddenTools(caller: Caller): Promise<readonly string[]>

  /** Returns the secrets of the caller's organization, the same array until one changes: its results may not show them. */
  registeredSecrets(caller: Caller): Promise<readonly RegisteredSecret[]>

  /** Calls whose result is fetched later. */
  readonly tasks: GuardedNoun<Tasks, typeof taskNeeds> & Pick<Tasks, 'isOrphan' | 'settle'>

  /** Seals state that clients keep between two requests. */
  readonly sealing: Sealing

  /** Whether a run can start now; otherwise the reason. */
  readonly readiness: Runner['readiness']

  /** Returns the software of an image of the runner; nothing until a runner has connected. */
  softwareOf(image: string): Software

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

  /** Records traces; absent without a collector. */
  readonly tracing: Tracing | undefined

  /** Reports on the running server, for administrators of the whole instance. */
  readonly runtime: Runtime

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
  /** Below which previews have host names; absent or empty for none. */
  previewDomain?: string
  /** Absent: previews transfer as much as they can. */
  previewLimits?: PreviewLimits
  /** Counts every run. */
  metrics: Metrics
  /** Sends webhooks and formats their body. */
  webhooks: Pick<WebhookDeps, 'outbound' | 'toBody'>
  /** Directories of the host that are workspaces in development mode; absent: none. */
  hostWorkspaces?: readonly HostWorkspace[]
  /** Where workspaces are; absent: in named sandboxes. */
  workspaceHost?: WorkspaceHost
  /** Connects to an upstream and reads its tools. */
  inspectUpstream: InspectUpstream
  /** Logs in to the authorization servers of upstreams. */
  upstreamOAuth: UpstreamOAuth
  /** How many upstreams run as programs, and how these are installed. */
  upstreamPrograms: Pick<ProgramDeps, 'limits' | 'packages'>
  /** Time after which the tools of an upstream that is used are read again. */
  upstreamRefreshMs: number
  /** What installing the packages of profiles may use. */
  packageLimits: PackageLimits
  /** What reports on the running server need. */
  runtimeFacts: RuntimeFacts
  /** Replaces the time and the timers of sandboxes, for tests. */
  sandboxTime?: { clock: SandboxClock; timers: Timers }
  log: Log
}

/** Creates core, writes the rows of the profiles, and recovers the runs of an earlier front. */
export async function createCore({ store, runner, metrics, log, ...deps }: CoreDeps): Promise<Core> {
  const { vault, region } = deps
  for (const profile of deps.profiles) await store.profiles.ensure(toProfileRow(profile))
  const { toBody } = deps.webhooks
  const webhooks = new Webhooks({ store, vault, outbound: observed(deps.webhooks.outbound, metrics), toBody, log })
  const threadLocks = new ThreadLocks(store, log)
  const profiles = new Profiles(store, vault, deps.profiles, deps.readProfile)
  const packages = new PackageLayers({ store, runner, profiles, limits: deps.packageLimits, metrics, log })
  const volumes = new Volumes(store, runner, packages)
  const registered = new RegisteredSecretsOfOrgs(store, vault)
  const secrets = new NetworkSecrets(store, vault)
  const allowances = new UsageLimiter(store)
  const runs = new Runs({ store, runner, threads: threadLocks, volumes, secrets, allowances, webhooks, metrics, log })
  const keys: Keys = new Keys({ store, runner, profiles, vault, log, retired: (keyId) => sandboxes.retireKey(keyId) })
  const sealing = new Sealing(await ensureSecret(store, vault, 'sealing_of_states', newSealingSecret()))
  const links = new SignedLinks(store, await ensureSecret(store, vault, 'signing_of_links', newLinkSecret()))
  const hidden = new HiddenTools(store)
  const rights = new Rights(deps.tools, hidden, store)
  const callerOf = (keyId: string) => keys.callerOf(keyId)
  const openRequests = new OpenRequests(deps.requestLimits, callerOf, (error) => fault(error, log))
  const runNetworks = new RunNetworks(runner.networks, secrets, callerOf, (error) => fault(error, log))
  const retention = new RetentionJob(store, deps.runHistoryMs, log)
  const threads = new Threads(store, runner, threadLocks)
  const imageJobs = new ImageJobs((error) => log.error({ err: error }, 'image could not be added'))
  const tasks = new Tasks(store)
  const upstreams = upstreamNoun(rights, {
    ...{ store, runner: runner.sandboxes, vault, metrics, log },
    ...{ oauth: deps.upstreamOAuth, programs: deps.upstreamPrograms },
  })
  const places = new TransferPlaces(deps.requestLimits.transfersPerKey)
  const sandboxes = sandboxNoun(rights, {
    ...{ store, runner: runner.sandboxes, threads: threadLocks, volumes, secrets, vault, places, metrics, log },
    ...{ clock: systemClock, ...(deps.hostWorkspaces && { workspaces: deps.hostWorkspaces }) },
    ...deps.sandboxTime,
    ...(deps.previewLimits && { previewLimits: deps.previewLimits }),
    ...(deps.previewDomain && { previewDomain: deps.previewDomain }),
    callerOf,
    previewSecret: await ensureSecret(store, vault, 'signing_of_previews', newLinkSecret()),
  })
  const workspaceHost = deps.workspaceHost ?? new SandboxHost(sandboxes.lifecycle, rights)
  const workspaces = new Workspaces(workspaceHost, store, secrets, log)
  const maintenance = new StorageMaintenance(threads, volumes, profiles, log)
  // Clients will rely on data that the start created, such as the secret that signs links.
  await store.sync()
  const readiness = () => readinessOf(store, runner, runs.recovery.isDone)
  const watch = databaseWatch(store, log)
  watch.start()
  await runs.start()
  keys.startWatching()
  sandboxes.start()
  for (const each of [openRequests, runNetworks.job, retention, maintenance, packages.job, upstreams, webhooks])
    each.start()
  const runtime = new Runtime({
    ...{ store, runner, metrics, log, facts: deps.runtimeFacts, sandboxes: sandboxes.control },
    jobs: {
      check_database: watch,
      delete_expired: retention.job,
      settle_storage: maintenance.jobs.settle,
      expire_threads: maintenance.jobs.expire,
      retire_keys: keys.retirement,
      check_open_requests: openRequests.job,
      remove_packages: packages.job,
      ...upstreams.jobs,
      deliver_webhooks: webhooks.job,
    },
    caches: {
      profiles: toCache('Profiles of organizations, by organization and name.', profiles.cache),
      hidden_tools: toCache('Names of hidden tools, by organization.', hidden.cache.entries),
    },
    programs: upstreams.verbs.upstreamPrograms,
    profile: deps.profiles.find(({ name }) => name === 'default')!,
    notReady: () => reasonOf(readiness()),
  })
  const adminContext: AdminContext = {
    ...{ store, vault, profiles, region, runner, imageJobs, searches: new InTurn(), endings: runs.endings },
    ...{ outbound: deps.webhooks.outbound, inspectUpstream: deps.inspectUpstream, upstreamOAuth: deps.upstreamOAuth },
    programs: upstreams.verbs.upstreamPrograms,
  }
  const refresher = new UpstreamRefresher(adminContext, upstreams.verbs.seenTools, deps.upstreamRefreshMs, log)
  return {
    ...runVerbs(rights, store, runner, runs),
    drainInBackground: (events) => void drain(events).catch((error: unknown) => fault(error, log)),
    ...sandboxes.verbs,
    ...upstreams.verbs,
    files: rights.noun(new Files(store, runner, volumes, threadLocks, places), fileNeeds),
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
    workspaces: rights.noun(workspaces, workspaceNeeds),
    reviews: rights.noun(new Reviews(sandboxes.lifecycle), reviewNeeds),
    openRequests,
    requireCapability: (caller, capability) => rights.require(caller, capability),
    hiddenTools: (caller) => hidden.of(caller),
    registeredSecrets: (caller) => registered.of(caller),
    sealing,
    softwareOf: (image) => runner.images.softwareOf(image),
    get readiness() {
      return readiness()
    },
    tracing: metrics.tracing,
    runtime,
    authenticate: (secret) => keys.authenticate(secret),
    authenticateAdmin: (secret) => authenticateAdmin(store, secret),
    threadFiles: runner.files,
    adminContext,
    announceUpstreamChange: (orgId, name) => refresher.announce({ orgId, name }),
    noteUpstreamUse: (orgId, name, listedAt) => refresher.noteUse({ orgId, name }, listedAt),
    developer: () => developer(store, deps.profiles),
    recover: () => runs.recovery.recover(),
    close: async (what, graceMs) => {
      imageJobs.close()
      await watch.stop()
      await retention.stop()
      await maintenance.stop()
      await refresher.stop()
      await packages.close()
      await upstreams.stop()
      await keys.stop()
      await sandboxes.stop()
      await openRequests.stop()
      await runNetworks.job.stop()
      await runs.stop(what, graceMs)
      await workspaces.close()
      await webhooks.stop()
    },
  }
}

const reasonOf = (readiness: Runner['readiness']): string | null => (readiness.ready ? null : readiness.reason)

async function drain(events: AsyncGenerator<ExecuteEvent, void, undefined>): Promise<void> {
  for await (const _ of events);
}
