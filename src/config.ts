/** Resolves the configuration from flags, environment variables, the configuration file and defaults. */
import { isIP } from 'node:net'
import { ProfileRefused, type SettingProblem, StartRefused } from './base/errors.ts'
import type { Profile } from './base/profile.ts'
import { asMap, readFileText, readSetting, refuseUnknown, type Source } from './config-sources.ts'
import { type ProfileValues, toProfile } from './profile-settings.ts'
import { flagOf, type Properties, type Setting, toProperties, variableOf } from './setting.ts'
import {
  isProfileSettingName,
  isSettingName,
  renamedSettings,
  type SettingName,
  serverSettings,
  settingNames,
  settings,
  type Values,
} from './settings.ts'

/**
 * The whole configuration, resolved and checked: plain data that can be passed to another process as JSON. It has a
 * property for each server setting, in camelCase and with the unit in its name: `slot_idle_s` is `slotIdleMs`.
 */
export interface Config extends Properties<typeof serverSettings> {
  /** Always contains `default`. */
  profiles: Readonly<Record<string, Profile>>
  /** Where each setting came from, for `config show`. */
  sources: Readonly<Record<SettingName, Source>>
  /** All settings as operators write them, secrets included. */
  values: Values
  /** One sentence for each setting that was written under a former name. */
  deprecations: readonly string[]
}

/** What settings are read from. The process itself is not touched: arguments and environment are parameters. */
export interface ConfigSources {
  /** By setting name; a flag that may be repeated is a list. */
  flags: Readonly<Record<string, string | boolean | readonly string[]>>
  /** The environment; only `GLOVEBOX_*` is read. */
  env: Readonly<Record<string, string | undefined>>
  file: { path: string; text: string } | undefined
}

/** Ids that one slot owns. */
const idsPerSlot = 0x1_0000
/** First id that no slot may use: programs that store ids in signed integers fail above it. */
const slotIdsEnd = 0x8000_0000
/** Variables with the product's prefix that are not settings: the configuration file, and what client commands read. */
const otherVariables = ['GLOVEBOX_CONFIG', 'GLOVEBOX_URL', 'GLOVEBOX_KEY']

/**
 * Resolves every setting: flags override `GLOVEBOX_*` variables, which override the file, which overrides defaults.
 * @throws StartRefused with the setting and its source, when a setting is unknown, malformed or contradicts another.
 */
export function loadConfig(given: ConfigSources): Config {
  const { profiles: written = {}, ...fileSettings } = given.file ? readFileText(given.file.path, given.file.text) : {}
  const path = given.file?.path ?? ''
  refuseUnknownNames(given, fileSettings, path)

  const values: Partial<Record<SettingName, unknown>> = {}
  const sources: Partial<Record<SettingName, Source>> = {}
  const deprecations: string[] = []
  for (const name of settingNames) {
    const found = findWritten(name, given, fileSettings, path)
    values[name] = readSetting(settings[name], found.value, found.place)
    sources[name] = found.source
    if (found.name !== name) deprecations.push(`${found.place} is deprecated; use ${nameIn[found.source](name)}.`)
  }
  const checked = values as Values
  checkServer(checked)
  checkTls(checked)
  return {
    ...toProperties(serverSettings, checked),
    host: withoutBrackets(checked.host),
    profiles: readProfiles(checked, asMap(written, `profiles in the file ${path}`), path, deprecations),
    sources: sources as Record<SettingName, Source>,
    values: checked,
    deprecations,
  }
}

/** How a setting is named in each source. */
const nameIn: Readonly<Record<Source, (name: string) => string>> = {
  flag: flagOf,
  variable: variableOf,
  file: (name) => name,
  default: (name) => name,
}

interface Written {
  /** The current or former name under which it was written. */
  name: string
  source: Source
  value: unknown
  /** Where an operator finds it again. */
  place: string
}

/** Finds the strongest source of a setting; within one source the current name precedes former names. */
function findWritten(
  current: SettingName,
  { flags, env }: ConfigSources,
  fileSettings: Readonly<Record<string, unknown>>,
  path: string,
): Written {
  const setting: Setting = settings[current]
  const names = [current, ...setting.formerNames]
  for (const name of names) {
    if (flags[name] !== undefined)
      return { name, source: 'flag', value: flags[name], place: `The flag ${flagOf(name)}` }
  }
  for (const name of names) {
    const variable = variableOf(name)
    if (env[variable] !== undefined)
      return { name, source: 'variable', value: env[variable], place: `The variable ${variable}` }
  }
  for (const name of names) {
    if (Object.hasOwn(fileSettings, name))
      return { name, source: 'file', value: fileSettings[name], place: `${name} in the file ${path}` }
  }
  return { name: current, source: 'default', value: setting.default, place: `The default of ${current}` }
}

function refuseUnknownNames({ flags, env }: ConfigSources, fileSettings: Record<string, unknown>, path: string): void {
  const isKnown = (name: string) => isSettingName(name) || Object.hasOwn(renamedSettings, name)
  for (const name of Object.keys(flags)) {
    if (!isKnown(name)) refuseUnknown(`The flag ${flagOf(name)}`, flagOf(name), settingNames.map(flagOf))
  }
  const variables = [...settingNames, ...Object.keys(renamedSettings)].map(variableOf).concat(otherVariables)
  for (const name of Object.keys(env)) {
    if (name.startsWith('GLOVEBOX_') && !variables.includes(name)) {
      refuseUnknown(`The variable ${name}`, name, variables)
    }
  }
  for (const name of Object.keys(fileSettings)) {
    if (!isKnown(name)) refuseUnknown(`${name} in the file ${path}`, name, [...settingNames, 'profiles'])
  }
}

/** @throws StartRefused when server settings contradict each other. */
function checkServer(values: Values): void {
  const refuse = (problem: string, remedy: string): never => {
    throw new StartRefused(problem, remedy)
  }
  if (values.dev && !isLoopback(values.host)) {
    refuse(
      `host is ${values.host}, which is not a loopback address, but callers need no key in development mode.`,
      'Start without --dev and create keys with `glovebox keys create`, or listen on 127.0.0.1 or ::1.',
    )
  }
  if (values.workspace.length > 0 && !values.dev) {
    refuse(
      'workspace shares directories of this machine, which is possible in development mode only.',
      'Start with --dev, or remove the setting.',
    )
  }
  if (values.slots_ready > values.slots_max) {
    refuse(
      `slots_ready (${values.slots_ready}) is greater than slots_max (${values.slots_max}).`,
      'Lower slots_ready or raise slots_max.',
    )
  }
  for (const name of ['threads_mounted_max', 'slots_max'] as const) {
    if (values.runs_max > values[name]) {
      refuse(
        `runs_max (${values.runs_max}) is greater than ${name} (${values[name]}).`,
        `Each run needs one: lower runs_max or raise ${name}.`,
      )
    }
  }
  if (values.id_base + values.slots_max * idsPerSlot > slotIdsEnd) {
    refuse(
      `There are not enough ids between id_base (${values.id_base}) and ${slotIdsEnd} for slots_max (${values.slots_max}).`,
      'Lower id_base or slots_max: each slot uses 65,536 ids.',
    )
  }
  if (values.egress_uid === values.front_uid || values.egress_uid === values.front_gid) {
    refuse(
      `egress_uid (${values.egress_uid}) is the user or group of the API server process.`,
      'Set it to another id, so that neither process can reach into the other one.',
    )
  }
  for (const name of ['front_uid', 'front_gid', 'egress_uid'] as const) {
    // The id ranges of slots are used in turn up to the last one, however small slots_max is.
    if (values[name] >= values.id_base && values[name] < slotIdsEnd) {
      refuse(
        `${name} (${values[name]}) is in the id range of slots.`,
        `Set it to an id outside ${values.id_base}–${slotIdsEnd - 1}.`,
      )
    }
  }
}

/** @throws StartRefused when only one of the two files is named. */
function checkTls(values: Values): void {
  if ((values.tls_certificate === '') === (values.tls_key === '')) return
  const missing = values.tls_key === '' ? 'tls_key' : 'tls_certificate'
  throw new StartRefused(`TLS needs two files, but ${missing} is not set.`, `Set ${missing} to a PEM file.`)
}

/** Whether an address can be reached from this machine only. */
export function isLoopback(host: string): boolean {
  if (host === 'localhost') return true
  return isIP(host) === 4 ? host.startsWith('127.') : host === '::1' || host === '[::1]'
}

const withoutBrackets = (host: string): string => host.replace(/^\[(.*)\]$/, '$1')

/** The profile `default` from the settings themselves, and each profile of the file: the same with its overrides. */
function readProfiles(
  values: Values,
  written: Record<string, unknown>,
  path: string,
  deprecations: string[],
): Record<string, Profile> {
  const profiles: Record<string, Profile> = {}
  for (const [name, overrides] of Object.entries({ default: {}, ...written })) {
    const place = `profiles.${name} in the file ${path}`
    if (!/^[a-z0-9][a-z0-9_-]{0,63}$/.test(name)) {
      throw new StartRefused(
        `${place} is not a valid profile name.`,
        'Use lowercase letters, digits, "-" and "_"; start with a letter or digit.',
      )
    }
    profiles[name] = readProfile(values, name, asMap(overrides ?? {}, place), {
      placeOf: (key) => `profiles.${name}.${key} in the file ${path}`,
      deprecated: (sentence) => deprecations.push(sentence),
    })
  }
  return profiles
}

/** Values of secret settings, and of variables, which often are. */
const isHidden = (name: string): boolean => (settings[name as SettingName] as Setting).secret || name === 'env'

/** Lists the settings with their values and where these come from. Secrets are hidden. */
export const settingViews = ({ values, sources }: Pick<Config, 'values' | 'sources'>) =>
  settingNames.map((name) => {
    const { default: byDefault, meaning } = settings[name] as Setting
    const value = isHidden(name) ? '[hidden]' : values[name]
    return { name, value, default: byDefault, source: sources[name], meaning }
  })

/** How problems of a profile are reported. */
export interface ProfileReport {
  /** How a refusal names the place of a setting; by default its name. */
  placeOf?: (setting: string) => string
  /** Receives a sentence for each setting written under a former name. */
  deprecated?: (sentence: string) => void
}

/**
 * Makes a profile: `values` with some settings overridden.
 * @throws ProfileRefused with all settings that are unknown or malformed; StartRefused when one contradicts another.
 */
export function readProfile(
  values: ProfileValues,
  name: string,
  written: Readonly<Record<string, unknown>>,
  { placeOf = (setting) => setting, deprecated = () => undefined }: ProfileReport = {},
): Profile {
  const own: Record<string, unknown> = { ...values }
  const refused: (SettingProblem & { remedy: string })[] = []
  for (const [key, value] of Object.entries(written)) {
    try {
      const current = profileSetting(key, placeOf(key))
      if (current !== key) deprecated(`${placeOf(key)} is deprecated; use ${current}.`)
      own[current] = readSetting(settings[current], value, placeOf(key))
    } catch (error) {
      if (!(error instanceof StartRefused)) throw error
      refused.push({ setting: key, problem: error.message, remedy: error.remedy })
    }
  }
  if (refused.length > 0) throw new ProfileRefused(refused, refused[0]!.remedy)
  return toProfile(name, own as unknown as ProfileValues)
}

/** Returns the current name of a setting of profiles. @throws StartRefused when it does not exist. */
function profileSetting(key: string, place: string): SettingName {
  const current = renamedSettings[key] ?? key
  return isProfileSettingName(current) ? current : refuseUnknown(place, key, settingNames.filter(isProfileSettingName))
}
