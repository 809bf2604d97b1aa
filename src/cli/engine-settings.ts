import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defaultImage } from '../base/image.ts'
import type { Instance } from '../base/instance.ts'
import type { Config } from '../config.ts'
import { type EngineSettings, engineDefaults } from '../engine/settings.ts'

/** The part of the configuration that the engine needs. */
export function engineSettingsOf(config: Config, instance: Instance): EngineSettings {
  return {
    ...engineDefaults,
    stateDir: join(instance.stateDir, 'engine'),
    instanceId: instance.id,
    runtime: config.runtime,
    idBase: config.idBase,
    storageIops: config.storageIops,
    guestPath: fileURLToPath(new URL('../../build/guest', import.meta.url)),
    pythonZygotePath: fileURLToPath(new URL('../../build/python-zygote.so', import.meta.url)),
    nodePath: process.execPath,
    ...(config.packageCache.apt !== undefined && { cachedArchive: withoutLogin(config.packageCache.apt) }),
  }
}

function withoutLogin(address: string): string {
  const url = new URL(address)
  url.username = ''
  url.password = ''
  return url.href
}

/** The preload lists of the profiles with the default image, without duplicates. */
export function preloadsOf(config: Config): string[][] {
  const profiles = Object.values(config.profiles).filter(({ image }) => image === defaultImage)
  const lists = profiles.map(({ preload }) => JSON.stringify(preload))
  return [...new Set(lists)].map((list) => JSON.parse(list) as string[]).filter((modules) => modules.length > 0)
}
