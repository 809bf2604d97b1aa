import { join } from 'node:path'
import type { Command } from 'commander'
import { parseWorkspace } from '../base/host-workspace.ts'
import { defaultImage } from '../base/image.ts'
import { openInstance } from '../base/instance.ts'
import { InstanceLock } from '../base/instance-lock.ts'
import type { Language } from '../base/run.ts'
import type { Config } from '../config.ts'
import { createLog } from '../observe/log.ts'
import { openRunner } from '../runner/process.ts'
import { ended, Signs } from './child-lifecycle.ts'
import type { Cli } from './command.ts'
import { engineSettingsOf, preloadsOf } from './engine-settings.ts'
import { receiveConfig } from './hand-over.ts'
import { preparePackageCache } from './prepare-package-cache.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'
import { brokerCommand, pullerCommand } from './unprivileged-command.ts'

/** Started by the supervisor, which passes the configuration on standard input. */
export function register(program: Command, { io, exit }: Cli): void {
  program.command('runner', { hidden: true }).action(async () => exit(await runner(await receiveConfig(io.stdin), io)))
}

/** The runner process: serves until it is stopped or its supervisor is gone. @throws StartRefused. */
async function runner(config: Config, io: ProcessIo): Promise<number> {
  const signs = new Signs()
  // A service manager signals every process. This one always removes what it made; the supervisor limits the time.
  io.onRepeatedSignal(() => undefined)
  const log = createLog({
    level: config.logLevel,
    format: config.logFormat,
    destination: io.stderr,
    bindings: { process: 'runner' },
  })
  const instance = openInstance(config.home, config.stateDir)
  const lock = await InstanceLock.acquire(config.home, 'runner', true)
  const running = await openRunner(
    {
      instance,
      engine: engineSettingsOf(config, instance),
      pool: {
        slotsMax: config.slotsMax,
        slotsReady: config.slotsReady,
        idleMs: config.slotIdleMs,
        runsPerSlot: config.slotMaxRuns,
        zygoteMaxAgeMs: config.interpreterMaxAgeMs,
        prewarmJails: config.prewarmJails,
      },
      // Runs keep the slots that they can need.
      sandboxesMax: Math.max(0, Math.min(config.sandboxesMax, config.slotsMax - config.runsMax)),
      queue: {
        places: config.runsMax,
        placesPerOrg: config.runsPerOrg,
        keptForRecent: Math.floor(config.runsMax / 4),
        waitingPerOrg: config.queuePerOrg,
        waitMs: config.queueWaitMs,
      },
      storage: Object.values(config.profiles).every(
        ({ storage, volumes, packages }) => storage.kind === 'none' && volumes.length === 0 && !packages,
      )
        ? 'none'
        : {
            home: join(config.home, 'storage'),
            mountsDir: join(instance.stateDir, 'storage'),
            reserveBytes: config.storageReserveBytes,
            mountedMax: config.threadsMountedMax + config.sandboxesMax,
            idleMs: config.threadIdleMs,
            durability: config.threadDurability,
          },
      workspaces: config.workspace.map(parseWorkspace),
      brokerCommand: brokerCommand(config, instance),
      packageCache: preparePackageCache(config),
      images: {
        home: join(config.home, 'images'),
        mountsDir: join(instance.stateDir, 'images'),
        reserveBytes: config.storageReserveBytes,
        quota: { bytes: config.imageSizeBytes, inodes: config.imageFiles },
        prefersData: config.dev,
        registries: config.imageRegistries,
        outboundAllow: config.outboundAllow,
        pullerCommand: (uid) => pullerCommand(uid, instance),
      },
      preloads: preloadsOf(config),
      frontUid: config.frontUid,
      frontGid: config.frontGid,
      graceMs: config.frontGraceMs,
    },
    log,
  )
  for (const warning of missingDefaults(config, running.languages)) log.warn(warning)
  signs.ready()
  log.info({ reason: await ended(io) }, 'runner stopping')
  await running.close()
  lock.release()
  return exitCodes.ok
}

/** Returns a message for each profile whose calls without a language would be refused. */
export function missingDefaults({ profiles }: Pick<Config, 'profiles'>, found: readonly Language[]): string[] {
  return Object.entries(profiles)
    .filter(([, { image, defaultLanguage }]) => image === defaultImage && !found.includes(defaultLanguage))
    .map(
      ([name, { defaultLanguage }]) =>
        `The profile ${name} has the default language ${defaultLanguage}, which is not installed on this machine. Install it below /usr, or set default_language to one of: ${found.join(', ')}.`,
    )
}
