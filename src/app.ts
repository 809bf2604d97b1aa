import type { AddressInfo } from 'node:net'
import { Cleanup } from './base/cleanup.ts'
import { StartRefused } from './base/errors.ts'
import type { Instance } from './base/instance.ts'
import { type Config, readProfile } from './config.ts'
import { masterKeySource, openVault } from './core/access/master-key.ts'
import { createCore } from './core/core.ts'
import { Gateway } from './gateway/gateway.ts'
import { inspectUpstream } from './gateway/inspect.ts'
import { toDelivered } from './http/rest/execution.ts'
import { buildServer } from './http/server.ts'
import type { Log } from './observe/log.ts'
import { Metrics } from './observe/metrics.ts'
import { AllowedDestinations } from './outbound/destination.ts'
import { Outbound } from './outbound/outbound.ts'
import { RunnerClient } from './runner/client/client.ts'
import { databasePath, openStore } from './store/sqlite.ts'
import type { OnDiskProblem } from './store/sqlite-health.ts'
import { productInventory } from './tools/catalog.ts'

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
  const undo = new Cleanup()
  try {
    const store = await openStore(databasePath(instance.frontHome), reportTo(log))
    undo.add(() => store.close())
    const runner = new RunnerClient(instance.socketPath, (problem) => log.error({ problem }, 'runner is unusable'))
    undo.add(() => runner.close())
    const vault = await openVault(store, masterKeySource(config, instance.frontHome))
    const outbound = new Outbound(new AllowedDestinations(config.outboundAllow))
    const agent = outbound.agent()
    undo.add(() => agent.destroy())
    const metrics = new Metrics()
    const core = await createCore({
      ...{ store, runner, vault, metrics, log },
      profiles: Object.values(config.profiles),
      readProfile: (name, written) => readProfile(config.values, name, written),
      tools: productInventory.tools,
      region: config.region,
      runHistoryMs: config.runHistoryMs,
      requestLimits: {
        perKey: config.requestsPerKey,
        perOrg: config.requestsPerOrg,
        transfersPerKey: config.transfersPerKey,
        bufferBytes: config.bufferBytes,
      },
      webhooks: { outbound, toBody: (run) => JSON.stringify(toDelivered(run)) },
      inspectUpstream: (target) => inspectUpstream(agent, version, target),
    })
    undo.add(() => core.close('leave', 0))
    const uploadPace = { minBytesPerSecond: config.uploadMinRate, windowMs: uploadWindowMs }
    const gateway = new Gateway(core, agent, version)
    const server = await buildServer({ core, gateway, config: { ...config, version, uploadPace }, metrics, log })
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

const reportTo =
  (log: Log): OnDiskProblem =>
  (problem, cause) => {
    if (problem === undefined) log.info('the database can be written again')
    else log.error({ err: cause, problem }, 'the database cannot be written')
  }

async function listen(server: Awaited<ReturnType<typeof buildServer>>, { host, port }: Config): Promise<string> {
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
  return `http://${host.includes(':') ? `[${host}]` : host}:${address.port}`
}
