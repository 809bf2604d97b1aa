import type { BackgroundJob } from '../../base/background-job.ts'
import type { Log } from '../../observe/log.ts'
import type { Metrics } from '../../observe/metrics.ts'
import type { RunnerSandboxes } from '../../runner/protocol/sandboxes.ts'
import type { Store } from '../../store/store.ts'
import type { GuardedNoun, Rights } from '../access/rights.ts'
import type { Vault } from '../access/vault.ts'
import type { Caller } from '../caller.ts'
import { UpstreamLogins, type UpstreamOAuth } from './logins.ts'
import { OwnCredentials, ownCredentialNeeds } from './own-credentials.ts'
import type { ProgramDeps } from './programs/program-deps.ts'
import { UpstreamPrograms } from './programs/programs.ts'
import { SeenTools } from './seen-tools.ts'
import { StoredCredentials } from './stored-credentials.ts'
import { Upstreams, upstreamNeeds } from './upstreams.ts'
import { type UpstreamCall, UpstreamUsage } from './usage.ts'

/** The operations on upstreams. */
export interface UpstreamVerbs {
  /** MCP servers behind the gateway. */
  readonly upstreams: GuardedNoun<Upstreams, typeof upstreamNeeds>
  /** The credentials of keys for upstreams. */
  readonly ownCredentials: GuardedNoun<OwnCredentials, typeof ownCredentialNeeds>
  /** The tokens of logins to upstreams, for the gateway. */
  readonly upstreamCredentials: StoredCredentials
  /** Runs upstreams that are programs, for the gateway. */
  readonly upstreamPrograms: UpstreamPrograms
  /** The tools that upstreams list otherwise than they were approved. */
  readonly seenTools: SeenTools
  /** Counts a call of an upstream that the caller has made. */
  countUpstreamCall(caller: Caller, call: UpstreamCall): void
}

export interface UpstreamNounDeps {
  store: Store
  runner: RunnerSandboxes
  vault: Vault
  oauth: UpstreamOAuth
  programs: Pick<ProgramDeps, 'limits' | 'packages'>
  metrics: Metrics
  log: Log
}

/** Everything that belongs to upstreams. */
export interface UpstreamNoun {
  verbs: UpstreamVerbs
  jobs: Readonly<Record<'write_upstream_usage' | 'stop_upstream_programs', BackgroundJob>>
  start(): void
  stop(): Promise<void>
}

/** Builds the operations on upstreams, and their background jobs. */
export function upstreamNoun(
  rights: Rights,
  { store, runner, vault, oauth, programs: programSettings, metrics, log }: UpstreamNounDeps,
): UpstreamNoun {
  const usage = new UpstreamUsage(store, metrics, log)
  const credentials = new StoredCredentials(store, vault)
  const seenTools = new SeenTools()
  const upstreams = new Upstreams(store, vault, usage, credentials, seenTools)
  const logins = new UpstreamLogins(store, vault, credentials, oauth)
  const programs = new UpstreamPrograms({ ...programSettings, store, runner, metrics, log })
  return {
    verbs: {
      upstreams: rights.noun(upstreams, upstreamNeeds),
      ownCredentials: rights.noun(new OwnCredentials(upstreams, credentials, logins), ownCredentialNeeds),
      upstreamCredentials: credentials,
      upstreamPrograms: programs,
      seenTools,
      countUpstreamCall: (caller, call) => usage.count(caller, call),
    },
    jobs: { write_upstream_usage: usage.job, stop_upstream_programs: programs.job },
    start: () => {
      usage.start()
      programs.job.start()
    },
    stop: async () => {
      await programs.close()
      await usage.stop()
    },
  }
}
