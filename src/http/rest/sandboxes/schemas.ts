import Type from 'typebox'
import type { RefusalCode } from '../../../base/errors.ts'
import { networkVerdicts } from '../../../base/network.ts'
import type { ProcessEnding, ProcessStatus, SandboxFile } from '../../../base/sandbox.ts'
import type { SandboxRef } from '../../../core/sandboxes/names.ts'
import { crashPolicies, endActions } from '../../../core/sandboxes/settings.ts'
import type { SandboxMetrics } from '../../../core/sandboxes/view.ts'
import type { Group } from '../../operation.ts'
import { named, oneOf, orNull, Time, union } from '../../schemas.ts'

export const sandboxGroup: Group = {
  name: 'Sandboxes',
  description: 'Named environments that keep their processes and their disk between calls.',
}

/** Refusals of every operation on a sandbox. */
export const sandboxRefusals: readonly RefusalCode[] = [
  'invalid_argument',
  'sandbox_unknown',
  'namespace_denied',
  'sandbox_not_running',
  'sandbox_busy',
  'unavailable',
]

export const namespaceParameter = {
  namespace: 'Namespace of the sandbox; `default` if it is absent.',
}

/** Returns the sandbox that a path and its query name. */
export const refOf = ({ name }: { name: string }, query: Readonly<Record<string, string>>): SandboxRef => ({
  name,
  ...(query.namespace !== undefined && { namespace: query.namespace }),
})

export const sandboxStates = ['starting', 'running', 'paused', 'stopping', 'stopped', 'crashed'] as const

export const Sandbox = named(
  'Sandbox',
  Type.Object({
    id: Type.String({ description: 'Can be used instead of the name.' }),
    namespace: Type.String(),
    name: Type.String(),
    state: oneOf(sandboxStates),
    reason: orNull(Type.String(), { description: 'Why it stopped or crashed by itself.' }),
    image: orNull(Type.String(), { description: 'null: the default image.' }),
    memory_bytes: Type.Integer(),
    cpus: Type.Number(),
    disk_bytes: Type.Integer({ description: 'Quota of its disk.' }),
    workdir: Type.String(),
    user: Type.String(),
    volumes: Type.Array(Type.String()),
    secrets: orNull(Type.Array(Type.String()), { description: 'null: all that its profile names.' }),
    metadata: Type.Unsafe<Record<string, string>>({ type: 'object', additionalProperties: { type: 'string' } }),
    on_crash: oneOf(crashPolicies),
    on_end: oneOf(endActions),
    idle_timeout: orNull(Type.Number({ description: 'Seconds.' })),
    lifetime: orNull(Type.Number({ description: 'Seconds.' })),
    restarts: Type.Integer({ description: 'Automatic starts after crashes, since it was last started by a call.' }),
    created_at: Time,
    started_at: orNull(Time),
    ended_at: orNull(Time),
    last_used_at: Time,
    expires_at: orNull(Time),
  }),
)

const optionalSeconds = (description: string) => Type.Optional(Type.Number({ minimum: 0, description }))

export const times = {
  idle_timeout: optionalSeconds('Seconds without calls after which `on_end` applies; 0 for no limit.'),
  lifetime: optionalSeconds('Seconds from now after which `on_end` applies; 0 for no limit.'),
}

export const environment = Type.Optional(
  Type.Unsafe<Record<string, string>>({
    type: 'object',
    additionalProperties: { type: 'string' },
    description: 'Environment variables, which override those of the key and its profile.',
  }),
)

export const CreateBody = named(
  'CreateSandboxRequest',
  Type.Object(
    {
      name: Type.Optional(
        Type.String({ description: 'Letters, digits, - and _, at most 63; a new name if it is absent.' }),
      ),
      namespace: Type.Optional(Type.String({ description: 'default if it is absent.' })),
      image: Type.Optional(Type.String({ description: 'The default image of the server if it is absent.' })),
      memory_bytes: Type.Optional(Type.Integer({ minimum: 1 })),
      cpus: Type.Optional(Type.Number({ minimum: 0 })),
      disk_bytes: Type.Optional(Type.Integer({ minimum: 1, description: 'Quota of its disk.' })),
      env_vars: environment,
      workdir: Type.Optional(Type.String({ description: 'Absolute path; /workspace by default.' })),
      user: Type.Optional(Type.String({ description: 'User of its processes; root of the sandbox by default.' })),
      volumes: Type.Optional(
        Type.Array(Type.String(), { description: 'Slugs of volumes of the profile; all of them by default.' }),
      ),
      secrets: Type.Optional(
        Type.Array(Type.String(), { description: 'Names of secrets of the profile; all of them by default.' }),
      ),
      metadata: Type.Optional(
        Type.Unsafe<Record<string, string>>({ type: 'object', additionalProperties: { type: 'string' } }),
      ),
      on_crash: Type.Optional(
        oneOf(crashPolicies, { description: 'Start again with the disk after a crash, or stay crashed (default).' }),
      ),
      on_end: Type.Optional(
        oneOf(endActions, { description: 'What happens at a timeout; stop by default, which keeps the disk.' }),
      ),
      ...times,
    },
    { additionalProperties: false },
  ),
)

export const ExtendBody = named(
  'ExtendSandboxRequest',
  Type.Object(times, { additionalProperties: false, description: 'An absent time stays as it is.' }),
)

const figures = {
  cpu_seconds: Type.Number(),
  memory_bytes: Type.Integer(),
  memory_limit_bytes: Type.Integer(),
  disk_bytes: Type.Integer(),
  disk_quota_bytes: Type.Integer(),
  processes: Type.Integer(),
  uptime_seconds: Type.Number(),
  network_received_bytes: Type.Integer(),
  network_sent_bytes: Type.Integer(),
  network: Type.Array(
    Type.Object({
      host: Type.String(),
      port: Type.Integer(),
      verdict: oneOf(networkVerdicts),
      connections: Type.Integer(),
      bytes: Type.Integer(),
    }),
    { description: 'Its connections to the outside since it was started, by destination.' },
  ),
}

export const Metrics = named(
  'SandboxMetrics',
  Type.Object({
    id: Type.String(),
    namespace: Type.String(),
    name: Type.String(),
    state: oneOf(sandboxStates),
    figures: orNull(Type.Object(figures), { description: 'null while it is not running.' }),
  }),
)

export const metricsOnTheWire = ({ figures: read, ...rest }: SandboxMetrics) => ({
  ...rest,
  figures: read && {
    cpu_seconds: read.cpuSeconds,
    memory_bytes: read.memoryBytes,
    memory_limit_bytes: read.memoryLimitBytes,
    disk_bytes: read.diskBytes,
    disk_quota_bytes: read.diskQuotaBytes,
    processes: read.processes,
    uptime_seconds: read.uptimeMs / 1_000,
    network_received_bytes: read.networkReceivedBytes,
    network_sent_bytes: read.networkSentBytes,
    network: read.network,
  },
})

/** How a process ended, one object per kind. */
export const ProcessEndingSchema = union('ProcessEnding', 'kind', 'How the process ended.', [
  Type.Object(
    {
      kind: oneOf(['exited']),
      code: Type.Integer(),
      oom_kills: Type.Optional(
        Type.Integer({
          description: 'Processes of the sandbox that the kernel killed for memory while this one ran; absent: none.',
        }),
      ),
    },
    { title: 'ProcessExited' },
  ),
  Type.Object(
    { kind: oneOf(['signaled']), signal: Type.String({ description: 'Without SIG.' }) },
    { title: 'ProcessSignaled' },
  ),
  Type.Object({ kind: oneOf(['timed_out']), limit_ms: Type.Number() }, { title: 'ProcessTimedOut' }),
  Type.Object({ kind: oneOf(['out_of_memory']), limit_bytes: Type.Integer() }, { title: 'ProcessOutOfMemory' }),
  Type.Object({ kind: oneOf(['not_started']), reason: Type.String() }, { title: 'ProcessNotStarted' }),
  Type.Object({ kind: oneOf(['sandbox_ended']) }, { title: 'ProcessSandboxEnded' }),
])

export function processEndingOnTheWire(ending: ProcessEnding): object {
  switch (ending.kind) {
    case 'timed_out':
      return { kind: ending.kind, limit_ms: ending.limitMs }
    case 'out_of_memory':
      return { kind: ending.kind, limit_bytes: ending.limitBytes }
    case 'exited':
      return { kind: ending.kind, code: ending.code, ...(ending.oomKills && { oom_kills: ending.oomKills }) }
    case 'signaled':
    case 'not_started':
    case 'sandbox_ended':
      return ending
  }
}

export const Process = named(
  'SandboxProcess',
  Type.Object({
    process: Type.Integer({ description: 'Number of the process in its sandbox; never reused.' }),
    pid: Type.Optional(Type.Integer({ description: 'Process ID inside the sandbox.' })),
    argv: Type.Array(Type.String()),
    started_at: Time,
    ending: orNull(ProcessEndingSchema),
  }),
)

export const processOnTheWire = ({ processId, pid, argv, startedAt, ending }: ProcessStatus) => ({
  process: processId,
  ...(pid !== undefined && { pid }),
  argv,
  started_at: new Date(startedAt).toISOString(),
  ending: ending ? processEndingOnTheWire(ending) : null,
})

export const File = named(
  'SandboxFile',
  Type.Object({
    name: Type.String(),
    path: Type.String(),
    kind: oneOf(['file', 'directory', 'link', 'fifo', 'socket', 'device']),
    size_bytes: Type.Integer(),
    mode: Type.String({ description: 'Permission bits in octal, for example 0644.' }),
    uid: Type.Integer(),
    gid: Type.Integer(),
    modified_at: Time,
    target: Type.Optional(Type.String({ description: 'Where a link points.' })),
  }),
)

export const fileOnTheWire = ({ name, path, kind, sizeBytes, mode, uid, gid, modifiedMs, target }: SandboxFile) => ({
  ...{ name, path, kind, size_bytes: sizeBytes, mode: `0${mode.toString(8)}`, uid, gid },
  modified_at: new Date(modifiedMs).toISOString(),
  ...(target !== undefined && { target }),
})
