import type { SandboxFigures } from '../../base/sandbox.ts'
import type { SandboxRow, SandboxRowState } from '../../store/sandbox-rows.ts'
import { type CrashPolicy, type EndAction, settingsOf } from './settings.ts'

/** A named sandbox as clients see it. */
export interface SandboxView {
  id: string
  namespace: string
  name: string
  state: SandboxRowState
  /** Why it stopped or crashed by itself. */
  reason: string | null
  /** `null`: the default image. */
  image: string | null
  memory_bytes: number
  cpus: number
  disk_bytes: number
  workdir: string
  user: string
  volumes: readonly string[]
  /** `null`: all that its profile names. */
  secrets: readonly string[] | null
  metadata: Readonly<Record<string, string>>
  on_crash: CrashPolicy
  on_end: EndAction
  /** `null`: no limit. */
  idle_timeout: number | null
  lifetime: number | null
  restarts: number
  created_at: string
  started_at: string | null
  ended_at: string | null
  last_used_at: string
  expires_at: string | null
}

export function toView(row: SandboxRow): SandboxView {
  const settings = settingsOf(row)
  const { limits, workdir, user, volumes, onCrash, onEnd, idleTimeoutMs, lifetimeMs } = settings
  return {
    id: row.id,
    namespace: row.namespace,
    name: row.name,
    state: row.state,
    reason: row.reason,
    image: row.image,
    memory_bytes: row.memoryBytes,
    cpus: limits.cpus,
    disk_bytes: row.quotaBytes,
    workdir,
    user,
    volumes,
    secrets: settings.secrets ?? null,
    metadata: JSON.parse(row.metadata) as Record<string, string>,
    on_crash: onCrash,
    on_end: onEnd,
    idle_timeout: idleTimeoutMs === null ? null : idleTimeoutMs / 1_000,
    lifetime: lifetimeMs === null ? null : lifetimeMs / 1_000,
    restarts: row.restarts,
    created_at: row.createdAt,
    started_at: row.startedAt,
    ended_at: row.endedAt,
    last_used_at: row.lastUsedAt,
    expires_at: row.expiresAt,
  }
}

/** Figures of one sandbox; `null` where it is not running. */
export interface SandboxMetrics {
  id: string
  namespace: string
  name: string
  state: SandboxRowState
  figures: SandboxFigures | null
}
