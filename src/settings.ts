/**
 * Every setting of the product, once. The configuration, the flags of the command line, the variables, the
 * configuration file and `docs/configuration.md` all come from this table.
 */
import Type, { type Static, type TSchema } from 'typebox'
import { busyAnswers, toolsets } from './base/profile.ts'
import { languages, moduleNamePattern, reuses, volumesMax } from './base/run.ts'
import { logFormats, logLevels } from './observe/log.ts'

/** `bytes` may be written as a number or as `512MiB`; every other unit is written as a plain number. */
export type Unit = 'bytes' | 'seconds' | 'cores' | 'count' | 'id' | undefined

export interface Setting<Schema extends TSchema = TSchema> {
  schema: Schema
  default: unknown
  unit: Unit
  meaning: string
  /** May stand under a name in `profiles:` as well. */
  inProfiles: boolean
  /** Its value is never printed. */
  secret: boolean
}

function setting<Schema extends TSchema>(
  schema: Schema,
  value: Static<Schema>,
  meaning: string,
  more: { unit?: Unit; inProfiles?: boolean; secret?: boolean } = {},
): Setting<Schema> {
  const { unit, inProfiles = false, secret = false } = more
  return { schema, default: value, unit, meaning, inProfiles, secret }
}

const KiB = 1024
const MiB = 1024 * KiB
const GiB = 1024 * MiB

const absolutePath = Type.String({ pattern: '^/[^\\0]*$' })
const names = Type.Array(Type.String({ pattern: '^[^\\s,]+$' }))
const count = (minimum: number, maximum: number) => Type.Integer({ minimum, maximum })
const bytes = count
const seconds = (minimum: number, maximum: number) => Type.Number({ minimum, maximum })
/** User and group ids as the kernel has them; 0 is root, the last one means "none". */
const id = Type.Integer({ minimum: 1, maximum: 0xffff_fffe })

const server = {
  host: setting(
    Type.String({ pattern: '^[^\\s/]+$' }),
    '127.0.0.1',
    'Address to listen on; in development mode loopback only. 0.0.0.0 and :: are every address of this machine.',
  ),
  port: setting(count(0, 65_535), 5555, 'Port to listen on; 0 takes a free one.'),
  dev: setting(
    Type.Boolean(),
    false,
    'Development mode: callers on this machine need no key. Otherwise every path but /healthz, /readyz and /openapi.json needs one.',
  ),
  region: setting(
    Type.String({ pattern: '^[a-z0-9]{1,16}$' }),
    'us',
    'Stands in the keys that `glovebox keys create` makes: sk-us-….',
  ),
  master_key_file: setting(
    Type.String({ pattern: '^(/[^\\0]*)?$' }),
    '',
    'File of the key that secrets in the database are sealed with, 32 bytes in base64; made when missing. It and its directory belong to front_uid. Empty: master.key beside the database.',
  ),
  master_key: setting(
    Type.String({ pattern: '^[A-Za-z0-9+/=]*$' }),
    '',
    'The same key itself, best given as GLOVEBOX_MASTER_KEY; then no file is used.',
    { secret: true },
  ),
  public_url: setting(
    Type.String({ pattern: '^(https?://[^\\s?#]+)?$' }),
    '',
    'Where clients reach this server, as https://code.example; stands in links to files. Empty: the Host of each request, by http.',
  ),
  allowed_hosts: setting(
    names,
    [],
    'Host names that requests may address besides the loopback names; anything else is refused. Where keys are needed, none listed means any name.',
  ),
  allowed_origins: setting(
    names,
    [],
    'Web origins, such as https://app.example, whose pages may call; all others are refused.',
  ),
  trusted_proxies: setting(
    names,
    [],
    'Addresses and networks, such as 10.0.0.0/8, of proxies whose X-Forwarded-For is believed; nobody else is.',
  ),
  outbound_allow: setting(
    names,
    [],
    'Hosts, addresses and networks, such as 10.0.0.0/8, that webhooks may reach though they are not public, over plain http too and at any port.',
  ),
  max_body_bytes: setting(bytes(64 * KiB, 64 * MiB), 4 * MiB, 'Largest request body.', { unit: 'bytes' }),
  log_level: setting(Type.Enum(logLevels), 'info', 'Least important lines that are logged.'),
  log_format: setting(Type.Enum(logFormats), 'auto', 'auto is pretty on a terminal and JSON lines otherwise.'),
}

const machine = {
  home: setting(absolutePath, '/var/lib/glovebox', 'Directory of the database and of all that must outlive a restart.'),
  state_dir: setting(absolutePath, '/run/glovebox', 'Directory of sockets, slots and all that may vanish at a reboot.'),
  runtime: setting(
    Type.Enum(['auto', 'crun', 'runc', 'runsc']),
    'auto',
    'OCI runtime that makes slots; auto takes the first that passes the start-up probe. runsc does not yet: the host could not put its runs under limits.',
  ),
  front_uid: setting(id, 61_000, 'User id of the process that speaks HTTP; needs no entry in /etc/passwd.', {
    unit: 'id',
  }),
  front_gid: setting(id, 61_000, 'Group id of the process that speaks HTTP.', { unit: 'id' }),
  id_base: setting(
    Type.Integer({ minimum: 0x1_0000, maximum: 0x7fff_0000, multipleOf: 0x1_0000 }),
    0x7000_0000,
    'First of the user and group ids given to slots, 65,536 to each; a multiple of 65,536.',
    { unit: 'id' },
  ),
}

const capacity = {
  slots_max: setting(count(1, 4096), 32, 'Slots at once, busy and idle.', { unit: 'count' }),
  slots_ready: setting(count(0, 256), 2, 'Slots kept ready that belong to nobody yet.', { unit: 'count' }),
  slot_idle_s: setting(seconds(0, 86_400), 60, 'How long a slot waits for the next run of its key.', {
    unit: 'seconds',
  }),
  slot_max_runs: setting(count(1, 1_000_000), 1000, 'Runs after which a slot is replaced.', { unit: 'count' }),
  host_max_age_s: setting(
    seconds(1, 86_400),
    900,
    'Age of the interpreter that runs are forked from at which its slot is replaced: its forks share a hash seed.',
    { unit: 'seconds' },
  ),
  jails_ahead: setting(
    Type.Boolean(),
    true,
    'Whether an idle slot has the jail of its next run waiting, interpreter started: milliseconds less for some MiB more.',
  ),
  runs_max: setting(count(1, 4096), 16, 'Runs at once on this machine.', { unit: 'count' }),
  runs_per_org: setting(count(1, 4096), 4096, 'Runs of one organisation at once; runs_max limits all together.', {
    unit: 'count',
  }),
  queue_per_org: setting(count(0, 100_000), 64, 'Runs of one organisation that may wait; one more is refused.', {
    unit: 'count',
  }),
  queue_wait_s: setting(seconds(0, 3600), 30, 'How long a run waits for its turn before it is refused.', {
    unit: 'seconds',
  }),
  threads_mounted_max: setting(count(1, 4096), 200, 'Threads mounted at once, used and idle.', { unit: 'count' }),
  thread_idle_s: setting(seconds(0, 86_400), 300, 'How long a thread stays mounted for its next run.', {
    unit: 'seconds',
  }),
  storage_reserve: setting(
    bytes(0, 1024 * GiB),
    GiB,
    'Room on the disk that threads leave free: with less, none is made or mounted.',
    { unit: 'bytes' },
  ),
  run_history_days: setting(
    count(1, 36_500),
    30,
    'How long runs can be looked up after they began; the audit and the usage stay.',
    { unit: 'count' },
  ),
  front_grace_s: setting(seconds(0, 3600), 10, 'How long runs go on when the process that speaks HTTP is gone.', {
    unit: 'seconds',
  }),
  drain_s: setting(seconds(0, 3600), 10, 'How long a stopping server lets its runs finish.', { unit: 'seconds' }),
}

const inProfiles = true

const profile = {
  languages: setting(
    Type.Array(Type.Enum(languages), { minItems: 1, uniqueItems: true }),
    [...languages],
    'Languages that runs may use.',
    { inProfiles },
  ),
  default_language: setting(Type.Enum(languages), 'python', 'Language of a call that names none.', { inProfiles }),
  timeout_default_s: setting(count(1, 86_400), 30, 'Time limit of a call that names none.', {
    unit: 'seconds',
    inProfiles,
  }),
  timeout_max_s: setting(count(1, 86_400), 3600, 'Longest time limit that a call may name.', {
    unit: 'seconds',
    inProfiles,
  }),
  limit_memory: setting(bytes(16 * MiB, 4096 * GiB), 512 * MiB, 'Memory and tmpfs content of a run together.', {
    unit: 'bytes',
    inProfiles,
  }),
  limit_cpus: setting(Type.Number({ minimum: 0.01, maximum: 1024 }), 1, 'Processor share of a run.', {
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
  limit_home: setting(bytes(64 * KiB, 1024 * GiB), 256 * MiB, 'Size of the home directory of a run.', {
    unit: 'bytes',
    inProfiles,
  }),
  storage: setting(
    Type.Enum(['none', 'threads']),
    'threads',
    'Whether a call may name a thread, whose home directory is kept from call to call.',
    { inProfiles },
  ),
  limit_thread: setting(
    bytes(8 * MiB, 16 * 1024 * GiB),
    GiB,
    'What a thread can hold; one that was made with less grows when it is next mounted, none shrinks.',
    {
      unit: 'bytes',
      inProfiles,
    },
  ),
  limit_thread_files: setting(
    count(16, 100_000_000),
    100_000,
    'Files, directories and links that a thread can hold from when it is made; more grow with its size.',
    { unit: 'count', inProfiles },
  ),
  thread_retention_days: setting(
    count(0, 36_500),
    0,
    'A thread that was not used for so many days is removed with all that it holds; 0 is never.',
    { unit: 'count', inProfiles },
  ),
  volumes: setting(
    Type.Array(Type.String({ pattern: '^[a-z0-9][a-z0-9_-]{0,63}:(ro|rw)$' }), {
      uniqueItems: true,
      maxItems: volumesMax,
    }),
    [],
    'Volumes that every run has at /volumes/<slug>, as slug:ro or slug:rw; those of the org that its key belongs to.',
    { inProfiles },
  ),
  output_soft: setting(
    bytes(1 * KiB, 64 * MiB),
    1 * MiB,
    'Output kept per stream; what exceeds it is counted and dropped, head and tail kept.',
    { unit: 'bytes', inProfiles },
  ),
  output_hard: setting(bytes(1 * KiB, 1024 * GiB), 64 * MiB, 'Output per stream that ends the run.', {
    unit: 'bytes',
    inProfiles,
  }),
  env: setting(
    Type.Record(Type.String({ pattern: '^[A-Za-z_][A-Za-z0-9_]{0,127}$' }), Type.String({ pattern: '^[^\\0]*$' }), {
      additionalProperties: false,
    }),
    {},
    'Variables of every run; those of a call win over them.',
    { inProfiles, secret: true },
  ),
  reuse: setting(
    Type.Enum(reuses),
    'key',
    'Which runs may share a slot, one after another: those of one key, those of one key and thread, or none.',
    { inProfiles },
  ),
  preload: setting(
    Type.Array(Type.String({ pattern: moduleNamePattern }), {
      uniqueItems: true,
      maxItems: 32,
    }),
    [],
    'Modules of Python that are imported before a run needs them. Each must import without leaving a thread behind.',
    { inProfiles },
  ),
  webhook_url: setting(
    Type.String({ pattern: '^(https?://[\\x21-\\x7e]{1,2000})?$' }),
    '',
    'Where the ending of a run is told that was asked for with Prefer: respond-async and names no address itself.',
    { inProfiles },
  ),
  toolsets: setting(
    Type.Array(Type.Enum(toolsets), { uniqueItems: true }),
    [...toolsets],
    'Groups of tools that clients may be shown.',
    { inProfiles },
  ),
  detach_after_s: setting(
    Type.Number({ minimum: 0, maximum: 3600 }),
    0,
    'A run that goes on for longer is answered with what it printed so far, and goes on by itself; 0 is never.',
    { unit: 'seconds', inProfiles },
  ),
  thread_busy: setting(
    Type.Enum(busyAnswers),
    'refuse',
    'What a call is told whose thread is running something else: an error, a result, or nothing until it may run.',
    { inProfiles },
  ),
  thread_busy_wait_s: setting(Type.Number({ minimum: 0, maximum: 3600 }), 30, 'How long such a call waits.', {
    unit: 'seconds',
    inProfiles,
  }),
}

export const settings = { ...server, ...machine, ...capacity, ...profile } as const
export const settingGroups = { Server: server, Machine: machine, Capacity: capacity, Profile: profile } as const

export type SettingName = keyof typeof settings
export type ProfileSettingName = keyof typeof profile
export type Values = { [Name in SettingName]: Static<(typeof settings)[Name]['schema']> }
export type ProfileValues = Pick<Values, ProfileSettingName>

export const isSettingName = (name: string): name is SettingName => Object.hasOwn(settings, name)
export const isProfileSettingName = (name: string): name is ProfileSettingName => Object.hasOwn(profile, name)
export const variableOf = (name: string): string => `GLOVEBOX_${name.toUpperCase()}`
export const flagOf = (name: string): string => `--${name.replaceAll('_', '-')}`
