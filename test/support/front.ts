import { mkdtemp, rm } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { FastifyInstance } from 'fastify'
import { type Profile, toolsets } from '../../src/base/profile.ts'
import { loadConfig, readProfile, settingViews } from '../../src/config.ts'
import type { RequestLimits } from '../../src/core/access/open-requests.ts'
import type { ToolGrant } from '../../src/core/access/rights.ts'
import { Vault } from '../../src/core/access/vault.ts'
import type { InspectUpstream } from '../../src/core/admin/upstreams.ts'
import type { Caller } from '../../src/core/caller.ts'
import { type Core, createCore } from '../../src/core/core.ts'
import type { RecordedRun } from '../../src/core/runs/history.ts'
import { noRuntimeFacts } from '../../src/core/runtime/runtime.ts'
import type { WorkspaceHost } from '../../src/core/workspaces/workspaces.ts'
import { Gateway } from '../../src/gateway/gateway.ts'
import { inspectUpstream } from '../../src/gateway/inspect.ts'
import { upstreamOAuth } from '../../src/gateway/oauth/logins.ts'
import type { HttpDeps } from '../../src/http/operation.ts'
import { toDelivered } from '../../src/http/rest/execution.ts'
import { buildServer, type HttpConfig } from '../../src/http/server.ts'
import { packagesNetwork } from '../../src/network-settings.ts'
import { createLog, type Log } from '../../src/observe/log.ts'
import { Metrics } from '../../src/observe/metrics.ts'
import { AllowedDestinations } from '../../src/outbound/destination.ts'
import { Outbound } from '../../src/outbound/outbound.ts'
import { openStore } from '../../src/store/sqlite.ts'
import type { Store } from '../../src/store/store.ts'
import { describeTools, productInventory } from '../../src/tools/catalog.ts'
import { ProcessRunner } from './process-runner.ts'

export const testProfile: Profile = {
  name: 'default',
  revision: 'rev_test',
  languages: ['python', 'node', 'typescript', 'bash'],
  defaultLanguage: 'python',
  image: 'default',
  timeoutDefaultMs: 10_000,
  timeoutMaxMs: 60_000,
  limits: {
    memoryBytes: 512 * 1024 * 1024,
    cpus: 1,
    pids: 64,
    openFiles: 1024,
    fileBytes: 1024 * 1024 * 1024,
    tmpBytes: 64 * 1024 * 1024,
    homeBytes: 64 * 1024 * 1024,
    outputSoftBytes: 64 * 1024,
    outputHardBytes: 8 * 1024 * 1024,
  },
  env: { FROM_PROFILE: 'profile' },
  reuse: 'key',
  preload: [],
  storage: { kind: 'none' },
  sandboxes: {
    memoryMaxBytes: 1024 * 1024 * 1024,
    cpusMax: 2,
    disk: { bytes: 64 * 1024 * 1024, inodes: 10_000 },
    diskMaxBytes: 1024 * 1024 * 1024,
    idleMs: null,
    lifetimeMaxMs: null,
  },
  volumes: [],
  orgs: [],
  calls: {
    toolsets,
    detachAfterMs: null,
    onBusyThread: 'refuse',
    busyWaitMs: 1_000,
    webhookUrl: null,
    // What programs read; tests of the results that models read set it to false.
    structuredResults: true,
    mcpOutputCharacters: 10_000_000,
    exitCodeIsError: true,
    redactOutput: false,
    upstreamsInMcp: false,
    workspaceReadOnly: false,
  },
}

export const threadsProfile: Profile = {
  ...testProfile,
  storage: { kind: 'threads', quota: { bytes: 8 * 1024 * 1024, inodes: 1_000 }, retentionDays: null },
}

const outbound = new Outbound(new AllowedDestinations(['127.0.0.1']))
/** Shared by all fronts of a test file; its connections end with the process. */
const agent = outbound.agent(8192)

export const gatewayOf = (core: Core): Gateway => new Gateway(core, agent, '0.0.0-test')

/** What core needs besides its modules. */
export const coreSettings = {
  vault: new Vault(Buffer.alloc(32, 'test')),
  tools: productInventory.tools,
  region: 'us',
  runtimeFacts: {
    ...noRuntimeFacts,
    tools: describeTools,
    settings: settingViews(loadConfig({ flags: {}, env: {}, file: undefined })),
  },
  runHistoryMs: 30 * 24 * 60 * 60 * 1000,
  requestLimits: { perKey: 512, perOrg: 1024, transfersPerKey: 8, bufferBytes: 256 * 1024 * 1024 },
  webhooks: {
    outbound,
    toBody: (run: RecordedRun) => JSON.stringify(toDelivered(run)),
  },
  inspectUpstream: (...given: Parameters<InspectUpstream>) => inspectUpstream(agent, '0.0.0-test', ...given),
  upstreamPrograms: {
    limits: { max: 8, perOrg: 4, memoryBytes: 2 ** 31, diskBytes: 2 ** 33 },
    packages: packagesNetwork(loadConfig({ flags: {}, env: {}, file: undefined }).values),
  },
  upstreamRefreshMs: 10 * 60_000,
  packageLimits: { sizeBytes: 2 ** 26, buildMs: 60_000, buildsMax: 2, buildsPerOrg: 1 },
  upstreamOAuth: upstreamOAuth(agent, 'https://glovebox.example.com'),
  readProfile: (name: string, written: Readonly<Record<string, unknown>>) =>
    readProfile(loadConfig({ flags: {}, env: {}, file: undefined }).values, name, written),
}

export interface OpenCore {
  store: Store
  runner: ProcessRunner
  core: Core
  caller: Caller
  metrics: Metrics
  log: Log
  /** What was logged, one JSON text per line. */
  lines: string[]
  databasePath: string
  close(): Promise<void>
}

/** Store, runner and core, as the front has them; each test file makes its own. @param tools what rights come from. */
export async function openCore(
  profile: Profile = testProfile,
  tools: readonly ToolGrant[] = productInventory.tools,
  requestLimits: RequestLimits = coreSettings.requestLimits,
  workspaceHost?: WorkspaceHost,
  previewDomain = '',
): Promise<OpenCore> {
  const directory = await mkdtemp(join(tmpdir(), 'glovebox-front-'))
  const lines: string[] = []
  const destination = { write: (line: string) => lines.push(line) }
  const log = createLog({ level: 'debug', format: 'json', destination })
  const databasePath = join(directory, 'glovebox.sqlite')
  const metrics = new Metrics()
  const store = await openStore(databasePath, { queries: metrics.recent.queries })
  const runner = new ProcessRunner()
  const core = await createCore({
    store,
    runner,
    profiles: [profile],
    metrics,
    log,
    ...coreSettings,
    tools,
    requestLimits,
    previewDomain,
    ...(workspaceHost && { workspaceHost }),
  })
  const caller = await core.developer()
  const close = async () => {
    runner.close()
    await core.close('shutdown', 5_000)
    await store.close()
    await rm(directory, { recursive: true })
  }
  return { store, runner, core, caller, metrics, log, lines, databasePath, close }
}

export interface Front extends OpenCore {
  url: string
  port: number
  /** The server itself, to be asked for its routes. */
  app: FastifyInstance
  /** Sends one JSON body. */
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<Response>
}

/** A server on a free loopback port over real modules. @param tools what the rights of keys come from. */
export async function openFront(
  profile?: Profile,
  config: Partial<HttpConfig> = {},
  offers?: HttpDeps['offers'],
  tools?: readonly ToolGrant[],
  requestLimits?: RequestLimits,
  workspaceHost?: WorkspaceHost,
): Promise<Front> {
  const opened = await openCore(profile, tools, requestLimits, workspaceHost, config.previewDomain)
  const app = await buildServer({
    core: opened.core,
    gateway: gatewayOf(opened.core),
    metrics: opened.metrics,
    log: opened.log,
    ...(offers && { offers }),
    config: {
      host: '127.0.0.1',
      port: 0,
      maxBodyBytes: 4 * 1024 * 1024,
      connectionsMax: 8192,
      allowedHosts: [],
      allowedOrigins: [],
      trustedProxies: [],
      dev: true,
      version: '0.0.0-test',
      publicUrl: '',
      previewDomain: '',
      runtimeAllowed: ['127.0.0.0/8', '::1'],
      uploadPace: { minBytesPerSecond: 1024, windowMs: 30_000 },
      ...config,
    },
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = app.server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}`
  return {
    ...opened,
    url,
    port,
    app,
    post: (path, body, headers = {}) =>
      fetch(`${url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: typeof body === 'string' ? body : JSON.stringify(body),
      }),
    close: async () => {
      opened.runner.close()
      await app.close()
      await opened.close()
    },
  }
}
