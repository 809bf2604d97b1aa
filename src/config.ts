import { createHash } from 'node:crypto'
import { isIP } from 'node:net'
import { StartRefused } from './base/errors.ts'
import type { MountedVolume, Profile } from './base/profile.ts'
import { asMap, readFileText, readSetting, refuseUnknown, type Source } from './config-sources.ts'
import type { LogFormat, LogLevel } from './observe/log.ts'
import {
  flagOf,
  isProfileSettingName,
  isSettingName,
  type ProfileValues,
  type SettingName,
  settings,
  type Values,
  variableOf,
} from './settings.ts'

/** The whole configuration, resolved and checked: plain data, fit to be handed to another process as JSON. */
export interface Config {
  host: string
  /** 0: a free one is taken. */
  port: number
  dev: boolean
  region: string
  publicUrl: string
  masterKey: string
  /** Empty: beside the database. */
  masterKeyFile: string
  allowedHosts: readonly string[]
  allowedOrigins: readonly string[]
  trustedProxies: readonly string[]
  outboundAllow: readonly string[]
  maxBodyBytes: number
  logLevel: LogLevel
  logFormat: LogFormat
  home: string
  stateDir: string
  runtime: 'auto' | 'crun' | 'runc' | 'runsc'
  frontUid: number
  frontGid: number
  idBase: number
  slotsMax: number
  slotsReady: number
  slotIdleMs: number
  slotMaxRuns: number
  hostMaxAgeMs: number
  jailsAhead: boolean
  runsMax: number
  runsPerOrg: number
  queuePerOrg: number
  queueWaitMs: number
  threadsMountedMax: number
  threadIdleMs: number
  storageReserveBytes: number
  frontGraceMs: number
  drainMs: number
  runHistoryMs: number
  /** Always holds `default`. */
  profiles: Readonly<Record<string, Profile>>
  /** Where each setting came from, for `config show`. */
  sources: Readonly<Record<SettingName, Source>>
  /** The settings as they were resolved, secrets among them. */
  values: Values
}

/** What settings are read from. Nothing here touches the process: its words are handed in. */
export interface ConfigSources {
  /** By setting name; a flag that may be repeated is a list. */
  flags: Readonly<Record<string, string | boolean | readonly string[]>>
  /** The environment; only `GLOVEBOX_*` is looked at. */
  env: Readonly<Record<string, string | undefined>>
  file: { path: string; text: string } | undefined
}

/** Ids that one slot owns. */
const idsPerSlot = 0x1_0000
/** Where the ids of slots end: more are trouble for programs that hold them in signed integers. */
const slotIdsEnd = 0x8000_0000
/** Variables with our prefix that are not settings: the file's place, and what the client commands read. */
const otherVariables = ['GLOVEBOX_CONFIG', 'GLOVEBOX_URL', 'GLOVEBOX_KEY']

/**
 * Resolves every setting: flags over `GLOVEBOX_*` variables over the file over defaults.
 * @throws StartRefused that names the setting and its source, when one is unknown, ill-typed or contradicts another.
 */
export function loadConfig({ flags, env, file }: ConfigSources): Config {
  const fromFile = file ? readFileText(file.path, file.text) : {}
  const { profiles: written = {}, ...fileSettings } = fromFile
  refuseUnknownNames(flags, env, fileSettings, file?.path ?? '')

  const values: Record<string, unknown> = {}
  const sources: Record<string, Source> = {}
  for (const name of Object.keys(settings) as SettingName[]) {
    const setting = settings[name]
    const variable = variableOf(name)
    const [source, raw, place]: [Source, unknown, string] =
      flags[name] !== undefined
        ? ['flag', flags[name], `The flag ${flagOf(name)}`]
        : env[variable] !== undefined
          ? ['variable', env[variable], `The variable ${variable}`]
          : Object.hasOwn(fileSettings, name)
            ? ['file', fileSettings[name], `${name} in the file ${file?.path}`]
            : ['default', setting.default, `The default of ${name}`]
    values[name] = readSetting(setting, raw, place)
    sources[name] = source
  }
  const checked = values as unknown as Values
  checkMachine(checked)
  return {
    ...toConfig(checked),
    profiles: readProfiles(checked, asMap(written, `profiles in the file ${file?.path}`), file?.path ?? ''),
    sources: sources as Record<SettingName, Source>,
    values: checked,
  }
}

function refuseUnknownNames(
  flags: ConfigSources['flags'],
  env: ConfigSources['env'],
  fileSettings: Record<string, unknown>,
  path: string,
): void {
  const known = Object.keys(settings)
  for (const name of Object.keys(flags)) {
    if (!isSettingName(name)) refuseUnknown(`The flag ${flagOf(name)}`, flagOf(name), known.map(flagOf))
  }
  const variables = [...known.map(variableOf), ...otherVariables]
  for (const name of Object.keys(env)) {
    if (name.startsWith('GLOVEBOX_') && !variables.includes(name)) {
      refuseUnknown(`The variable ${name}`, name, variables)
    }
  }
  for (const name of Object.keys(fileSettings)) {
    if (!isSettingName(name)) refuseUnknown(`${name} in the file ${path}`, name, [...known, 'profiles'])
  }
}

function checkMachine(values: Values): void {
  const refuse = (problem: string, remedy: string): never => {
    throw new StartRefused(problem, remedy)
  }
  if (values.dev && !isLoopback(values.host)) {
    refuse(
      `host is ${values.host}, which is not a loopback address, and in development mode callers need no key.`,
      'Start without --dev, so that callers need a key of `glovebox keys create`; or use 127.0.0.1 or ::1.',
    )
  }
  for (const proxy of values.trusted_proxies) {
    if (!isAddressOrNetwork(proxy)) {
      refuse(`trusted_proxies holds ${proxy}, which is no address.`, 'Write addresses, or networks as 10.0.0.0/8.')
    }
  }
  for (const entry of values.outbound_allow) {
    if (entry.includes('/') && !isAddressOrNetwork(entry)) {
      refuse(
        `outbound_allow holds ${entry}, which is no network.`,
        'Write hosts, addresses, or networks as 10.0.0.0/8.',
      )
    }
  }
  if (values.slots_ready > values.slots_max) {
    refuse(
      `slots_ready (${values.slots_ready}) is more than slots_max (${values.slots_max}).`,
      'Lower slots_ready or raise slots_max.',
    )
  }
  if (values.runs_max > values.threads_mounted_max) {
    refuse(
      `runs_max (${values.runs_max}) is more than threads_mounted_max (${values.threads_mounted_max}).`,
      'Each run may use a thread: lower runs_max or raise threads_mounted_max.',
    )
  }
  if (values.runs_max > values.slots_max) {
    refuse(
      `runs_max (${values.runs_max}) is more than slots_max (${values.slots_max}).`,
      'Each run needs a slot: lower runs_max or raise slots_max.',
    )
  }
  if (values.id_base + values.slots_max * idsPerSlot > slotIdsEnd) {
    refuse(
      `id_base (${values.id_base}) leaves room for fewer slots than slots_max (${values.slots_max}) below ${slotIdsEnd}.`,
      'Lower id_base or slots_max: each slot takes 65,536 ids.',
    )
  }
  for (const name of ['front_uid', 'front_gid'] as const) {
    // Slots are given one range after the other, up to the last, however few there are at once.
    if (values[name] >= values.id_base && values[name] < slotIdsEnd) {
      refuse(
        `${name} (${values[name]}) lies among the ids of slots.`,
        `Choose one outside ${values.id_base}–${slotIdsEnd - 1}.`,
      )
    }
  }
}

/** Whether an address can be reached from this machine only. */
export function isLoopback(host: string): boolean {
  if (host === 'localhost') return true
  return isIP(host) === 4 ? host.startsWith('127.') : host === '::1' || host === '[::1]'
}

function isAddressOrNetwork(text: string): boolean {
  const [, address = '', bits = '0'] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? []
  return isIP(address) !== 0 && Number(bits) <= (isIP(address) === 4 ? 32 : 128)
}

function toConfig(values: Values): Omit<Config, 'profiles' | 'sources' | 'values'> {
  return {
    host: values.host.replace(/^\[(.*)\]$/, '$1'),
    port: values.port,
    dev: values.dev,
    region: values.region,
    publicUrl: values.public_url,
    masterKey: values.master_key,
    masterKeyFile: values.master_key_file,
    allowedHosts: values.allowed_hosts,
    allowedOrigins: values.allowed_origins,
    trustedProxies: values.trusted_proxies,
    outboundAllow: values.outbound_allow,
    maxBodyBytes: values.max_body_bytes,
    logLevel: values.log_level,
    logFormat: values.log_format,
    home: values.home,
    stateDir: values.state_dir,
    runtime: values.runtime,
    frontUid: values.front_uid,
    frontGid: values.front_gid,
    idBase: values.id_base,
    slotsMax: values.slots_max,
    slotsReady: values.slots_ready,
    slotIdleMs: values.slot_idle_s * 1000,
    slotMaxRuns: values.slot_max_runs,
    hostMaxAgeMs: values.host_max_age_s * 1000,
    jailsAhead: values.jails_ahead,
    runsMax: values.runs_max,
    runsPerOrg: values.runs_per_org,
    queuePerOrg: values.queue_per_org,
    queueWaitMs: values.queue_wait_s * 1000,
    threadsMountedMax: values.threads_mounted_max,
    threadIdleMs: values.thread_idle_s * 1000,
    storageReserveBytes: values.storage_reserve,
    frontGraceMs: values.front_grace_s * 1000,
    drainMs: values.drain_s * 1000,
    runHistoryMs: values.run_history_days * 24 * 60 * 60 * 1000,
  }
}

/** `default` from the settings themselves, and one for each name in the file: the settings with its own on top. */
function readProfiles(values: Values, written: Record<string, unknown>, path: string): Record<string, Profile> {
  const profiles: Record<string, Profile> = {}
  for (const [name, overrides] of Object.entries({ default: {}, ...written })) {
    const place = `profiles.${name} in the file ${path}`
    if (!/^[a-z0-9][a-z0-9_-]{0,63}$/.test(name)) {
      throw new StartRefused(`${place} is not a usable name.`, 'Use lower-case letters, digits, "-" and "_".')
    }
    profiles[name] = readProfile(
      values,
      name,
      asMap(overrides ?? {}, place),
      (key) => `profiles.${name}.${key} in the file ${path}`,
    )
  }
  return profiles
}

/**
 * Makes a profile: `values` with some settings written anew.
 * @param placeOf where a setting is written, as a refusal names it.
 * @throws StartRefused that names the setting, when one is unknown, ill-typed or contradicts another.
 */
export function readProfile(
  values: Values,
  name: string,
  written: Readonly<Record<string, unknown>>,
  placeOf: (setting: string) => string = (setting) => setting,
): Profile {
  const own: Record<string, unknown> = { ...values }
  for (const [key, value] of Object.entries(written)) {
    if (!isProfileSettingName(key)) refuseUnknown(placeOf(key), key, Object.keys(settings).filter(isProfileSettingName))
    own[key] = readSetting(settings[key], value, placeOf(key))
  }
  return toProfile(name, own as unknown as ProfileValues)
}

function toProfile(name: string, values: ProfileValues): Profile {
  const refuse = (problem: string, remedy: string): never => {
    throw new StartRefused(`Profile ${name}: ${problem}.`, remedy)
  }
  if (!values.languages.includes(values.default_language)) {
    refuse(`default_language ${values.default_language} is not among its languages`, 'Add it or name another.')
  }
  if (values.timeout_default_s > values.timeout_max_s) {
    refuse('timeout_default_s is more than timeout_max_s', 'Lower the one or raise the other.')
  }
  if (values.output_soft > values.output_hard) {
    refuse('output_soft is more than output_hard', 'Lower the one or raise the other.')
  }
  const volumes = values.volumes.map(toMountedVolume)
  if (new Set(volumes.map(({ slug }) => slug)).size < volumes.length) {
    refuse('volumes names one volume twice', 'Mount it once, as ro or as rw.')
  }
  const content: Omit<Profile, 'revision'> = {
    name,
    languages: values.languages,
    defaultLanguage: values.default_language,
    timeoutDefaultMs: values.timeout_default_s * 1000,
    timeoutMaxMs: values.timeout_max_s * 1000,
    limits: {
      memoryBytes: values.limit_memory,
      cpus: values.limit_cpus,
      pids: values.limit_pids,
      openFiles: values.limit_open_files,
      fileBytes: values.limit_file_size,
      tmpBytes: values.limit_tmp,
      homeBytes: values.limit_home,
      outputSoftBytes: values.output_soft,
      outputHardBytes: values.output_hard,
    },
    env: Object.fromEntries(Object.entries(values.env).sort(([a], [b]) => (a < b ? -1 : 1))),
    reuse: values.reuse,
    preload: values.preload,
    calls: {
      toolsets: values.toolsets,
      detachAfterMs: values.detach_after_s === 0 ? null : values.detach_after_s * 1000,
      onBusyThread: values.thread_busy,
      busyWaitMs: values.thread_busy_wait_s * 1000,
      webhookUrl: values.webhook_url === '' ? null : values.webhook_url,
    },
    storage:
      values.storage === 'none'
        ? { kind: 'none' }
        : {
            kind: 'threads',
            quota: { bytes: values.limit_thread, inodes: values.limit_thread_files },
            retentionDays: values.thread_retention_days === 0 ? null : values.thread_retention_days,
          },
    volumes,
  }
  return { ...content, revision: createHash('sha256').update(JSON.stringify(content)).digest('hex').slice(0, 16) }
}

function toMountedVolume(written: string): MountedVolume {
  const [slug = '', mode] = written.split(':')
  return { slug, mode: mode === 'rw' ? 'rw' : 'ro' }
}
