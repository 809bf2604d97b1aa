/** The settings of profiles for named sandboxes, and the policy that they make. */
import Type, { type Static } from 'typebox'
import type { SandboxPolicy } from './base/profile.ts'
import { bytes, count, GiB, MiB, seconds, setting } from './setting.ts'

const inProfiles = true

export const sandboxSettings = {
  sandbox_memory_max: setting(
    bytes(16 * MiB, 4096 * GiB),
    2 * GiB,
    'Most memory that a named sandbox may have. One that does not set its own has limit_memory.',
    { unit: 'bytes', inProfiles },
  ),
  sandbox_cpus_max: setting(
    Type.Number({ minimum: 0.01, maximum: 1024 }),
    4,
    'Largest CPU share that a named sandbox may have. One that does not set its own has limit_cpus.',
    { unit: 'cores', inProfiles },
  ),
  sandbox_disk: setting(
    bytes(8 * MiB, 16 * 1024 * GiB),
    2 * GiB,
    'Disk of a named sandbox that does not set its own: everything that differs from its image.',
    { unit: 'bytes', inProfiles },
  ),
  sandbox_disk_files: setting(
    count(16, 100_000_000),
    200_000,
    'Files, directories and links on the disk of a named sandbox.',
    { unit: 'count', inProfiles },
  ),
  sandbox_disk_max: setting(bytes(8 * MiB, 16 * 1024 * GiB), 16 * GiB, 'Largest disk that a named sandbox may have.', {
    unit: 'bytes',
    inProfiles,
  }),
  sandbox_idle_s: setting(
    seconds(0, 31_536_000),
    3600,
    'Time without calls after which a named sandbox stops that does not set its own; its disk is kept. 0 turns this off.',
    { unit: 'seconds', inProfiles },
  ),
  sandbox_lifetime_max_s: setting(
    seconds(0, 31_536_000),
    0,
    'Longest time for which a named sandbox runs after a start or an extension; 0 sets no limit.',
    { unit: 'seconds', inProfiles },
  ),
} as const

type SandboxValues = { [Name in keyof typeof sandboxSettings]: Static<(typeof sandboxSettings)[Name]['schema']> }

export const toSandboxPolicy = (values: SandboxValues): SandboxPolicy => ({
  memoryMaxBytes: values.sandbox_memory_max,
  cpusMax: values.sandbox_cpus_max,
  disk: { bytes: values.sandbox_disk, inodes: values.sandbox_disk_files },
  diskMaxBytes: values.sandbox_disk_max,
  idleMs: values.sandbox_idle_s === 0 ? null : values.sandbox_idle_s * 1000,
  lifetimeMaxMs: values.sandbox_lifetime_max_s === 0 ? null : values.sandbox_lifetime_max_s * 1000,
})
