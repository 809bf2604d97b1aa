import { Refusal } from '../../base/errors.ts'
import { type HostWorkspace, workspacePath } from '../../base/host-workspace.ts'
import { packagesSlug } from '../../base/packages.ts'
import type { RunThread } from '../../base/run.ts'
import { homeDirectory, type SandboxLimits, type SandboxSpec } from '../../base/sandbox.ts'
import type { SandboxRow } from '../../store/sandbox-rows.ts'
import { developerOrg } from '../access/developer.ts'
import type { OpenedNetwork } from '../access/network-secrets.ts'
import { checkVariables } from '../access/variables.ts'
import type { Vault } from '../access/vault.ts'
import type { Caller } from '../caller.ts'

export const placeOfSandboxEnv = (sandboxId: string): string => `sandboxes/${sandboxId}/env`

/** What happens after a crash: the sandbox is started again with its disk, or stays crashed. */
export const crashPolicies = ['restart', 'stay'] as const
export type CrashPolicy = (typeof crashPolicies)[number]

/** What happens to a sandbox that is idle for too long, or whose lifetime ends. */
export const endActions = ['stop', 'pause', 'delete'] as const
export type EndAction = (typeof endActions)[number]

/** What a caller can set when it creates a sandbox. An absent value is that of the caller's profile. */
export interface SandboxRequest {
  image?: string | undefined
  memoryBytes?: number | undefined
  cpus?: number | undefined
  diskBytes?: number | undefined
  env?: Readonly<Record<string, unknown>> | undefined
  /** Absolute path. */
  workdir?: string | undefined
  user?: string | undefined
  /** Slugs of volumes that the profile mounts; absent: all of them. */
  volumes?: readonly string[] | undefined
  /** Names of secrets of the profile; absent: all of them. */
  secrets?: readonly string[] | undefined
  metadata?: Readonly<Record<string, string>> | undefined
  onCrash?: CrashPolicy | undefined
  onEnd?: EndAction | undefined
  /** 0 for none. */
  idleTimeoutMs?: number | undefined
  /** 0 for none. */
  lifetimeMs?: number | undefined
  /** What it is the workspace of. Not for clients. */
  storage?: { area: 'threads' | 'volumes'; id: string }
}

/** The settings of a sandbox that are stored as JSON. */
export interface SandboxSettings {
  limits: SandboxLimits
  workdir: string
  user: string
  volumes: readonly string[]
  /** Absent: all that its profile names. */
  secrets?: readonly string[]
  /** Its thread, which it locks while it is not stopped. */
  thread?: string
  onCrash: CrashPolicy
  onEnd: EndAction
  idleTimeoutMs: number | null
  lifetimeMs: number | null
}

const minMemoryBytes = 16 * 1024 * 1024
const minDiskBytes = 8 * 1024 * 1024
const yearMs = 365 * 24 * 3600 * 1000
const metadataMax = 32
const metadataKey = /^[^\p{C}]{1,64}$/u
const metadataValueMax = 1024

const invalid = (field: string, problem: string) => new Refusal('invalid_argument', { field, problem })

export const settingsOf = ({ settings }: SandboxRow): SandboxSettings => JSON.parse(settings) as SandboxSettings

/** The part of a row that a request determines. */
export type RequestedRow = Pick<
  SandboxRow,
  'image' | 'memoryBytes' | 'quotaBytes' | 'quotaFiles' | 'settings' | 'env' | 'metadata'
>

/**
 * Reads a request with the limits of the caller's profile.
 * @throws Refusal invalid_argument.
 */
export function toRequestedRow(caller: Caller, id: string, asked: SandboxRequest, vault: Vault): RequestedRow {
  const { sandboxes: policy, limits, env: ofProfile } = caller.profile
  const memoryBytes = asked.memoryBytes ?? Math.min(limits.memoryBytes, policy.memoryMaxBytes)
  const cpus = asked.cpus ?? Math.min(limits.cpus, policy.cpusMax)
  const diskBytes = asked.diskBytes ?? policy.disk.bytes
  requireBetween('memory', memoryBytes, minMemoryBytes, policy.memoryMaxBytes)
  requireBetween('cpus', cpus, 0.01, policy.cpusMax)
  requireBetween('disk', diskBytes, minDiskBytes, policy.diskMaxBytes)
  const env = { ...ofProfile, ...caller.env, ...checkVariables(asked.env ?? {}) }
  const settings: SandboxSettings = {
    limits: {
      memoryBytes,
      cpus,
      pids: limits.pids,
      openFiles: limits.openFiles,
      fileBytes: Math.max(limits.fileBytes, diskBytes),
      tmpBytes: limits.tmpBytes,
    },
    workdir: checkWorkdir(asked.workdir ?? '/workspace'),
    user: checkUser(asked.user ?? 'root'),
    volumes: checkVolumes(caller, asked.volumes),
    ...(asked.secrets !== undefined && { secrets: checkSecrets(caller, asked.secrets) }),
    ...(asked.storage?.area === 'threads' && { thread: asked.storage.id }),
    onCrash: asked.onCrash ?? 'stay',
    onEnd: asked.onEnd ?? 'stop',
    idleTimeoutMs: checkTime('idle_timeout', asked.idleTimeoutMs, policy.idleMs, null),
    lifetimeMs: checkTime('lifetime', asked.lifetimeMs, policy.lifetimeMaxMs, policy.lifetimeMaxMs),
  }
  return {
    image: asked.image === undefined ? null : checkImage(asked.image),
    memoryBytes,
    quotaBytes: diskBytes,
    quotaFiles: policy.disk.inodes,
    settings: JSON.stringify(settings),
    env: Object.keys(env).length === 0 ? null : vault.seal(placeOfSandboxEnv(id), JSON.stringify(env)),
    metadata: JSON.stringify(checkMetadata(asked.metadata ?? {})),
  }
}

function requireBetween(field: string, value: number, min: number, max: number): void {
  if (value >= min && value <= max) return
  throw invalid(field, `is ${value}; it must be from ${min} to ${max} with the profile of this key`)
}

/** Checks a time limit. @param byDefault if it is absent. @param maxMs `null`: none. @returns `null` for no limit. */
export function checkTime(
  field: string,
  askedMs: number | undefined,
  byDefault: number | null,
  maxMs: number | null,
): number | null {
  if (askedMs === undefined) return byDefault
  if (askedMs > yearMs) throw invalid(field, 'is longer than a year; use 0 for no limit')
  if (maxMs !== null && (askedMs === 0 || askedMs > maxMs))
    throw invalid(field, `is too long; the maximum in this profile is ${maxMs / 1_000} s`)
  return askedMs === 0 ? null : askedMs
}

function checkWorkdir(path: string): string {
  const isGood = /^\/[^\0]{0,1023}$/.test(path) && path.isWellFormed() && !path.split('/').includes('..')
  if (!isGood) throw invalid('workdir', 'must be an absolute path without .. and with at most 1024 characters')
  return path
}

function checkUser(user: string): string {
  if (!/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$/.test(user)) throw invalid('user', 'must be the name or number of a user')
  return user
}

function checkImage(image: string): string {
  if (!/^[A-Za-z0-9][\w.:/@+-]{0,254}$/.test(image)) throw invalid('image', 'must be the name of an image')
  return image
}

function checkVolumes({ profile }: Caller, asked: readonly string[] | undefined): readonly string[] {
  const mounted = profile.volumes.map(({ slug }) => slug)
  const unknown = asked?.find((slug) => !mounted.includes(slug))
  if (unknown !== undefined) {
    throw invalid('volumes', `must contain volumes of the profile; it does not mount ${unknown.slice(0, 64)}`)
  }
  return [...new Set(asked ?? mounted)]
}

function checkSecrets({ profile: { secrets = [] } }: Caller, asked: readonly string[]): readonly string[] {
  const unknown = asked.find((name) => !secrets.includes(name))
  if (unknown !== undefined) {
    throw invalid('secrets', `must contain secrets of the profile; it does not name ${unknown.slice(0, 64)}`)
  }
  return [...new Set(asked)]
}

/** @throws Refusal invalid_argument. */
export function checkMetadata(metadata: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const entries = Object.entries(metadata)
  if (entries.length > metadataMax) throw invalid('metadata', `has more than ${metadataMax} entries`)
  for (const [key, value] of entries) {
    if (!metadataKey.test(key)) throw invalid('metadata', 'has a key that is not 1 to 64 printable characters')
    if (value.length > metadataValueMax || !value.isWellFormed() || value.includes('\0'))
      throw invalid('metadata', `has a value that is not text of at most ${metadataValueMax} characters`)
  }
  return metadata
}

/** Returns the host directory that a sandbox has: one of its name, in development mode and the default namespace. */
export const sharedWith = (
  { orgId, namespace, name }: Pick<SandboxRow, 'orgId' | 'namespace' | 'name'>,
  workspaces: readonly HostWorkspace[],
): HostWorkspace | undefined =>
  orgId === developerOrg && namespace === 'default'
    ? workspaces.find((workspace) => workspace.name === name)
    : undefined

/** Returns what the runner needs to start a sandbox. @param opened network of the caller's profile. @param volumes those of this profile. */
export function toSandboxSpec(
  row: SandboxRow,
  vault: Vault,
  { network, env }: OpenedNetwork,
  volumes: SandboxSpec['volumes'] = [],
  workspaces: readonly HostWorkspace[] = [],
  thread?: RunThread,
): SandboxSpec {
  const { limits, workdir, user, volumes: slugs } = settingsOf(row)
  const shared = sharedWith(row, workspaces)
  return {
    sandboxId: row.id,
    orgId: row.orgId,
    keyId: row.keyId,
    ...(row.image !== null && { image: row.image }),
    env: {
      ...env,
      ...(thread && { HOME: homeDirectory }),
      ...(row.env && (JSON.parse(vault.open(placeOfSandboxEnv(row.id), row.env)) as Record<string, string>)),
    },
    workdir: shared ? workspacePath(shared.name) : workdir,
    user,
    limits,
    disk: { bytes: row.quotaBytes, inodes: row.quotaFiles },
    volumes: volumes.filter(({ slug }) => [...slugs, packagesSlug].includes(slug) && slug !== shared?.name),
    ...(thread && { thread }),
    ...(shared && { workspace: shared.name }),
    ...(network && { network }),
  }
}
