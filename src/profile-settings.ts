/** The settings that make a profile, and the profile that they make. */
import { createHash } from 'node:crypto'
import Type, { type Static } from 'typebox'
import { StartRefused } from './base/errors.ts'
import { defaultImage, imageNameMax, imageNamePattern } from './base/image.ts'
import { busyAnswers, type MountedVolume, type Profile, toolsets } from './base/profile.ts'
import { languages, moduleNamePattern, reuses, volumesMax } from './base/run.ts'
import { checkNetwork, type NetworkValues, networkSettings, toNetwork } from './network-settings.ts'
import { profilePackageSettings, toPackages } from './package-settings.ts'
import { sandboxSettings, toSandboxPolicy } from './sandbox-settings.ts'
import { bytes, count, GiB, KiB, MiB, seconds, setting } from './setting.ts'

const inProfiles = true

export const profileSettings = {
  languages: setting(
    Type.Array(Type.Enum(languages), { minItems: 1, uniqueItems: true }),
    [...languages],
    'Languages that runs may use.',
    { inProfiles },
  ),
  image: setting(
    Type.String({ pattern: imageNamePattern, maxLength: imageNameMax }),
    defaultImage,
    'Image that runs use. default is the /usr of the machine, in development mode the image data if it was built.',
    { inProfiles },
  ),
  default_language: setting(Type.Enum(languages), 'python', 'Language of a call that does not set one.', {
    inProfiles,
  }),
  timeout_default_s: setting(count(1, 86_400), 30, 'Time limit of a call that does not set one.', {
    unit: 'seconds',
    inProfiles,
  }),
  timeout_max_s: setting(count(1, 86_400), 3600, 'Longest time limit that a call may set.', {
    unit: 'seconds',
    inProfiles,
  }),
  limit_memory: setting(bytes(16 * MiB, 4096 * GiB), 512 * MiB, 'Memory of a run, including the content of /tmp.', {
    unit: 'bytes',
    inProfiles,
  }),
  limit_cpus: setting(Type.Number({ minimum: 0.01, maximum: 1024 }), 1, 'CPU share of a run, in cores.', {
    unit: 'cores',
    inProfiles,
  }),
  limit_pids: setting(count(4, 32_768), 128, 'Processes and threads of a run.', { unit: 'count', inProfiles }),
  limit_open_files: setting(count(32, 1_048_576), 1024, 'Open files of one process.', { unit: 'count', inProfiles }),
  limit_file_size: setting(bytes(64 * KiB, 4096 * GiB), GiB, 'Size of one file.', { unit: 'bytes', inProfiles }),
  limit_tmp: setting(bytes(64 * KiB, 1024 * GiB), 128 * MiB, 'Size of /tmp, and of /dev/shm.', {
    unit: 'bytes',
    inProfiles,
  }),
  limit_home: setting(bytes(64 * KiB, 1024 * GiB), 256 * MiB, 'Size of the home directory of a run without a thread.', {
    unit: 'bytes',
    inProfiles,
  }),
  storage: setting(
    Type.Enum(['none', 'threads']),
    'threads',
    'Whether a call may set thread_id, which keeps the home directory from call to call.',
    { inProfiles },
  ),
  limit_thread: setting(
    bytes(8 * MiB, 16 * 1024 * GiB),
    GiB,
    'Size of the home directory of a thread. A smaller existing thread grows when it is next mounted; threads never shrink.',
    { unit: 'bytes', inProfiles },
  ),
  limit_thread_files: setting(
    count(16, 100_000_000),
    100_000,
    'Files, directories and links in a new thread. The number grows with the size of the thread.',
    { unit: 'count', inProfiles },
  ),
  thread_retention_days: setting(
    count(0, 36_500),
    0,
    'Days after its last use at which a thread is deleted with its files; 0 keeps threads forever.',
    { unit: 'days', inProfiles },
  ),
  volumes: setting(
    Type.Array(Type.String({ pattern: '^[a-z0-9][a-z0-9_-]{0,63}:(ro|rw)$' }), {
      uniqueItems: true,
      maxItems: volumesMax,
    }),
    [],
    "Volumes of the key's organization that every run sees at /volumes/<slug>, as slug:ro or slug:rw.",
    { inProfiles },
  ),
  ...networkSettings,
  ...profilePackageSettings,
  ...sandboxSettings,
  output_soft: setting(
    bytes(1 * KiB, 64 * MiB),
    1 * MiB,
    'Output kept per stream. When a run prints more, the beginning and the end are kept and the omitted bytes are counted.',
    { unit: 'bytes', inProfiles },
  ),
  output_hard: setting(bytes(1 * KiB, 1024 * GiB), 64 * MiB, 'Output per stream at which a run is ended.', {
    unit: 'bytes',
    inProfiles,
  }),
  env: setting(
    Type.Record(Type.String({ pattern: '^[A-Za-z_][A-Za-z0-9_]{0,127}$' }), Type.String({ pattern: '^[^\\0]*$' }), {
      additionalProperties: false,
    }),
    {},
    'Environment variables of every run. The variables of a call override them.',
    { inProfiles, secret: true },
  ),
  reuse: setting(
    Type.Enum(reuses),
    'key',
    'Which runs may use the same slot one after another: all runs of a key, all runs of a key in the same thread, or none.',
    { inProfiles },
  ),
  preload: setting(
    Type.Array(Type.String({ pattern: moduleNamePattern }), { uniqueItems: true, maxItems: 32 }),
    [],
    'Python modules that are imported in advance. Importing one must not start a thread that keeps running.',
    { inProfiles },
  ),
  webhook_url: setting(
    Type.String({ pattern: '^(https?://[\\x21-\\x7e]{1,2000})?$' }),
    '',
    'Address that receives the result of runs started with Prefer: respond-async, unless the call sets its own.',
    { inProfiles },
  ),
  orgs: setting(
    Type.Array(Type.String({ pattern: '^org_[A-Za-z0-9_-]{1,64}$' }), { uniqueItems: true, maxItems: 10_000 }),
    [],
    'IDs of the organizations that may use a profile of the configuration file; none: all organizations.',
    { inProfiles },
  ),
  toolsets: setting(
    Type.Array(Type.Enum(toolsets), { uniqueItems: true }),
    [...toolsets],
    'Groups of tools that clients may see and call.',
    { inProfiles },
  ),
  detach_after_s: setting(
    seconds(0, 3600),
    0,
    'Time after which a call returns the output so far while its run continues in the background; 0 turns this off.',
    { unit: 'seconds', inProfiles },
  ),
  thread_busy: setting(
    Type.Enum(busyAnswers),
    'refuse',
    'Answer to a call whose thread is in use: an error (refuse), a tool result (result), or none until the thread is free (wait).',
    { inProfiles },
  ),
  structured_results: setting(
    Type.Boolean(),
    false,
    'Whether results over MCP contain structuredContent, and tools an outputSchema. Clients can choose with ?structured=.',
    { inProfiles },
  ),
  exit_code_is_error: setting(
    Type.Boolean(),
    true,
    'Whether a run that exits with another code than 0 is an error over MCP. Clients can choose with ?errors=.',
    { inProfiles },
  ),
  mcp_output: setting(
    count(1000, 10_000_000),
    30_000,
    'Characters of output that a call over MCP returns. execution_get and REST return all that is kept.',
    { unit: 'count', inProfiles },
  ),
  redact_output: setting(
    Type.Boolean(),
    false,
    'Whether the results of all tools are searched for secrets, which [REDACTED:name] replaces. REST returns them unchanged.',
    { inProfiles },
  ),
  mcp_upstreams: setting(
    Type.Boolean(),
    false,
    'Whether /mcp offers the tools of upstream MCP servers too, as /v1/mcp does.',
    { inProfiles },
  ),
  workspace_read_only: setting(
    Type.Boolean(),
    false,
    'Whether workspaces can only be read and searched. The tools that change them are not offered.',
    { inProfiles },
  ),
  thread_busy_wait_s: setting(
    seconds(0, 3600),
    30,
    'Longest time that a call waits for its thread with thread_busy: wait.',
    { unit: 'seconds', inProfiles },
  ),
} as const

/** Profile settings under the names and in the units that operators write. */
export type ProfileValues = {
  [Name in keyof typeof profileSettings]: Static<(typeof profileSettings)[Name]['schema']>
} & Pick<NetworkValues, 'package_cache'>

/**
 * Makes a profile from its settings.
 * @throws StartRefused when two settings contradict each other.
 */
export function toProfile(name: string, values: ProfileValues): Profile {
  checkProfile(name, values)
  const network = toNetwork(values)
  const content: Omit<Profile, 'revision'> = {
    name,
    languages: values.languages,
    image: values.image,
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
      mcpOutputCharacters: values.mcp_output,
      redactOutput: values.redact_output,
      upstreamsInMcp: values.mcp_upstreams,
      workspaceReadOnly: values.workspace_read_only,
      busyWaitMs: values.thread_busy_wait_s * 1000,
      structuredResults: values.structured_results,
      exitCodeIsError: values.exit_code_is_error,
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
    sandboxes: toSandboxPolicy(values),
    volumes: values.volumes.map(toMountedVolume),
    ...network,
    ...toPackages(values, network.network),
    orgs: values.orgs,
  }
  return { ...content, revision: createHash('sha256').update(JSON.stringify(content)).digest('hex').slice(0, 16) }
}

function checkProfile(name: string, values: ProfileValues): void {
  const refuse = (problem: string, remedy: string): never => {
    throw new StartRefused(`Profile ${name}: ${problem}.`, remedy)
  }
  if (!values.languages.includes(values.default_language)) {
    refuse(
      `default_language ${values.default_language} is not one of its languages`,
      'Add it to languages, or set another default_language.',
    )
  }
  if (values.timeout_default_s > values.timeout_max_s) {
    refuse(
      'timeout_default_s is greater than timeout_max_s',
      'Set timeout_default_s to at most timeout_max_s, or raise timeout_max_s.',
    )
  }
  if (values.output_soft > values.output_hard) {
    refuse('output_soft is greater than output_hard', 'Set output_soft to at most output_hard, or raise output_hard.')
  }
  checkNetwork(values, refuse)
  if (values.sandbox_disk > values.sandbox_disk_max) {
    refuse(
      'sandbox_disk is greater than sandbox_disk_max',
      'Set sandbox_disk to at most sandbox_disk_max, or raise sandbox_disk_max.',
    )
  }
  if (new Set(values.volumes.map((written) => toMountedVolume(written).slug)).size < values.volumes.length) {
    refuse('volumes lists a volume twice', 'Mount each volume once, as ro or as rw.')
  }
}

function toMountedVolume(written: string): MountedVolume {
  const [slug = '', mode] = written.split(':')
  return { slug, mode: mode === 'rw' ? 'rw' : 'ro' }
}
