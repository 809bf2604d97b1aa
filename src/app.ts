import type { AddressInfo } from 'node:net'
import { Cleanup } from './base/cleanup.ts'
import { StartRefused } from './base/errors.ts'
import { parseWorkspace } from './base/host-workspace.ts'
import type { Instance } from './base/instance.ts'
import { type Config, readProfile, settingViews } from './config.ts'
import { masterKeySource, openVault } from './core/access/master-key.ts'
import { createCore } from './core/core.ts'
import type { RuntimeFacts } from './core/runtime/runtime.ts'
import { Gateway } from './gateway/gateway.ts'
import { inspectUpstream } from './gateway/inspect.ts'
import { upstreamOAuth } from './gateway/oauth/logins.ts'
import { toDelivered } from './http/rest/execution.ts'
import { buildServer } from './http/server.ts'
import type { TlsFiles } from './http/tls.ts'
import { packagesNetwork, toPreviewLimits } from './network-settings.ts'
import type { Log } from './observe/log.ts'
import { Metrics } from './observe/metrics.ts'
import { OtlpExporter } from './observe/otlp.ts'
import { observeProcess } from './observe/process-vitals.ts'
import { Tracing } from './observe/tracing.ts'
import { AllowedDestinations } from './outbound/destination.ts'
import { Outbound } from './outbound/outbound.ts'
import { RunnerClient } from './runner/client/client.ts'
import { databasePath, openStore } from './store/sqlite.ts'
import type { OnDiskProblem } from './store/sqlite-health.ts'
import { describeTools, productInventory } from './tools/catalog.ts'

/** How far an upload may be behind `upload_min_rate`: longer than a common break of a mobile connection. */
const uploadWindowMs = 30_000

/** The running front. */
export interface App {
  /** The address that it listens on. */
  url: string
  /**
   * Refuses further requests and closes everything, newest first.
   * @param runs `shutdown` waits up to the drain time for runs, then ends them; `leave` lets them continue.
   */
  close(runs: 'shutdown' | 'leave'): Promise<void>
}

/**
 * Builds the modules of the front, each once and in order.
 * @param version of the product, which clients see.
 * @throws StartRefused when a module cannot be built with this configuration.
 */
export async function openApp(config: Config, instance: Instance, version: string, log: Log): Promise<App> {
  observeProcess()
  const undo = new Cleanup()
  try {
    const metrics = new Metrics()
    metrics.tracing = openTracing(config, version, metrics, log)
    undo.add(() => metrics.tracing?.close())
    const store = await openStore(databasePath(instance.frontHome), {
      onDiskProblem: reportTo(log),
      queries: metrics.recent.queries,
      onCheckpointError: (problem) => log.warn({ problem }, 'the write-ahead log of the database could not be moved'),
    })
    undo.add(() => store.close())
    const runner = new RunnerClient(instance.socketPath, (problem) => log.error({ problem }, 'runner is unusable'))
    undo.add(() => runner.close())
    const vault = await openVault(store, masterKeySource(config, instance.frontHome))
    const outbound = new Outbound(new AllowedDestinations(config.outboundAllow))
    // Each call of a client is one connection. Organizations can have upstreams at one origin, and must not wait for others.
    const agent = outbound.agent(config.connectionsMax)
    undo.add(() => agent.destroy())
    const core = await createCore({
      ...{ store, runner, vault, metrics, log },
      profiles: Object.values(config.profiles),
      readProfile: (name, written) => readProfile(config.values, name, written),
      hostWorkspaces: config.workspace.map(parseWorkspace),
      tools: productInventory.tools,
      region: config.region,
      runHistoryMs: config.runHistoryMs,
      requestLimits: {
        perKey: config.requestsPerKey,
        perOrg: config.requestsPerOrg,
        transfersPerKey: config.transfersPerKey,
        bufferBytes: config.bufferBytes,
      },
      previewDomain: config.previewDomain,
      previewLimits: toPreviewLimits(config),
      webhooks: { outbound, toBody: (run) => JSON.stringify(toDelivered(run)) },
      inspectUpstream: (...given) => inspectUpstream(agent, version, ...given),
      upstreamPrograms: {
        limits: {
          ...{ max: config.upstreamProgramsMax, perOrg: config.upstreamProgramsPerOrg },
          ...{ memoryBytes: config.upstreamProgramMemoryBytes, diskBytes: config.upstreamProgramDiskBytes },
        },
        packages: packagesNetwork(config.values),
      },
      upstreamRefreshMs: config.upstreamRefreshMs,
      packageLimits: {
        ...{ sizeBytes: config.packagesSizeBytes, buildMs: config.packagesBuildMs },
        ...{ buildsMax: config.packagesBuildsMax, buildsPerOrg: config.packagesBuildsPerOrg },
      },
      upstreamOAuth: upstreamOAuth(agent, config.publicUrl),
      runtimeFacts: factsOf(config, instance, version),
    })
    undo.add(() => core.close('leave', 0))
    const uploadPace = { minBytesPerSecond: config.uploadMinRate, windowMs: uploadWindowMs }
    const gateway = new Gateway(core, agent, version)
    undo.add(() => gateway.close())
    const server = await buildServer({
      core,
      gateway,
      config: { ...config, tls: tlsOf(config), version, uploadPace },
      metrics,
      log,
    })
    undo.add(() => server.close())
    const url = await listen(server, config)
    return {
      url,
      close: async (runs) => {
        await core.close(runs, config.drainMs)
        await undo.run()
      },
    }
  } catch (error) {
    await undo.run()
    throw error
  }
}

const tlsOf = ({ tlsCertificate: certificate, tlsKey: key }: Config): TlsFiles | undefined =>
  certificate === '' ? undefined : { certificate, key }

function openTracing(config: Config, version: string, metrics: Metrics, log: Log): Tracing | undefined {
  const { traceEndpoint: endpoint, traceHeaders, traceRatio } = config
  if (endpoint === '') return undefined
  const headers = Object.fromEntries(
    traceHeaders.map((header) => [header.split('=', 1)[0]!, header.replace(/^[^=]*=/, '')]),
  )
  return new Tracing(
    new OtlpExporter({ endpoint, headers, version }, (...sent) => metrics.spans(...sent), log),
    traceRatio,
  )
}

/** What reports on the running server say about its configuration. */
const factsOf = (config: Config, instance: Instance, version: string): RuntimeFacts => ({
  version,
  settings: settingViews(config),
  directories: { home: config.home, state: instance.stateDir },
  heapDumpDir: config.heapDumpDir,
  queueWaitMaxMs: config.queueWaitMs,
  connectionsMax: config.connectionsMax,
  tools: describeTools,
})

const reportTo =
  (log: Log): OnDiskProblem =>
  (problem, cause) => {
    if (problem === undefined) log.info('the database can be written again')
    else log.error({ err: cause, problem }, 'the database cannot be written')
  }

async function listen(server: Awaited<ReturnType<typeof buildServer>>, config: Config): Promise<string> {
  const { host, port } = config
  try {
    await server.listen({ host, port })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
    throw new StartRefused(
      `Port ${port} on ${host} is already in use.`,
      'Stop the process that listens there, or choose another port with --port.',
    )
  }
  const address = server.server.address() as AddressInfo
  return `${config.tlsCertificate === '' ? 'http' : 'https'}://${host.includes(':') ? `[${host}]` : host}:${address.port}`
}
