/**
 * Every setting of the product, defined once. Flags, environment variables, the configuration file, the typed
 * configuration and docs/configuration.md are derived from these tables. Settings of profiles are in profile-settings.ts.
 */
import { isIP } from 'node:net'
import Type, { type Static } from 'typebox'
import { workspacesProblem } from './base/host-workspace.ts'
import { defaultHome, defaultStateDir } from './base/instance.ts'
import { packageCacheSettings, previewSettings, sharedNetworkSettings } from './network-settings.ts'
import { logFormats, logLevels } from './observe/log.ts'
import { packageSettings } from './package-settings.ts'
import { profileSettings } from './profile-settings.ts'
import { registriesProblem } from './registry/reference.ts'
import { bytes, count, GiB, KiB, MiB, names, type Setting, seconds, setting } from './setting.ts'
import { upstreamSettings } from './upstream-settings.ts'

const absolutePath = Type.String({ pattern: '^/[^\\0]*$' })
/** User and group ids as the kernel has them; 0 is root, the last one means "none". */
const id = Type.Integer({ minimum: 1, maximum: 0xffff_fffe })

const server = {
  host: setting(
    Type.String({ pattern: '^[^\\s/]+$' }),
    '127.0.0.1',
    'Address to listen on. Development mode accepts loopback addresses only; 0.0.0.0 and :: listen on all addresses.',
  ),
  port: setting(count(0, 65_535), 5555, 'Port to listen on; 0 selects a free port.'),
  dev: setting(
    Type.Boolean(),
    false,
    'Development mode: callers on this machine need no key. Otherwise every path except /healthz, /readyz and /openapi.json requires one.',
  ),
  workspace: setting(
    Type.Array(Type.String({ pattern: '^[^,\\0]+$' })),
    [],
    'Directories of this machine that are workspaces in development mode, as [NAME=]DIRECTORY[:MODE]. MODE is read-write, read-only, or review: changes are kept apart until the operator applies or drops them. Without NAME it is the workspace of calls that name none.',
    { problem: workspacesProblem },
  ),
  region: setting(
    Type.String({ pattern: '^[a-z0-9]{1,16}$' }),
    'us',
    'Region part of the keys that `glovebox keys create` creates: sk-us-….',
  ),
  master_key_file: setting(
    Type.String({ pattern: '^(/[^\\0]*)?$' }),
    '',
    'File with the key that encrypts secrets in the database, 32 bytes in base64; created if it is missing. It and its directory must belong to front_uid. Empty: master.key in the directory of the database.',
  ),
  master_key: setting(
    Type.String({ pattern: '^[A-Za-z0-9+/=]*$' }),
    '',
    'The master key itself instead of a file, best set as GLOVEBOX_MASTER_KEY.',
    { secret: true },
  ),
  tls_certificate: setting(
    Type.String({ pattern: '^(/[^\\0]*)?$' }),
    '',
    'PEM file with the certificate and those of intermediate authorities; with it, the server speaks HTTPS only. Replaced files are used within ten seconds, without a restart. front_uid must be able to read it.',
  ),
  tls_key: setting(
    Type.String({ pattern: '^(/[^\\0]*)?$' }),
    '',
    'PEM file with the private key of tls_certificate. front_uid must be able to read it.',
  ),
  public_url: setting(
    Type.String({ pattern: '^(https?://[^\\s?#]+)?$' }),
    '',
    'Address of this server as clients see it, such as https://code.example; used in links to files. Empty: as trusted_proxies forward it, otherwise the Host header of each request.',
  ),
  preview_domain: setting(
    Type.String({ pattern: '^([A-Za-z0-9](?:[A-Za-z0-9.-]{0,180}[A-Za-z0-9])?(?::[0-9]{1,5})?)?$' }),
    '',
    'Domain, such as preview.example, whose names <port>-<id>.preview.example all lead to this server, with its port where it is not the usual one. Published ports of sandboxes then have origins of their own. Empty: only addresses below /preview/, whose pages have no origin. Use a domain that serves nothing else.',
  ),
  allowed_hosts: setting(
    names,
    [],
    'Host names that requests may use besides the loopback names. Other names are refused. When keys are required, an empty list accepts any name.',
  ),
  allowed_origins: setting(
    names,
    [],
    'Web origins, such as https://app.example, whose pages may call this server. Other origins are refused.',
    { problem: notOrigins },
  ),
  trusted_proxies: setting(
    names,
    [],
    'Addresses and networks, such as 10.0.0.0/8, of reverse proxies whose X-Forwarded-For, -Proto, -Host and -Prefix or Forwarded headers are trusted. They decide the address of the client, and links without public_url.',
    { problem: (list) => notAddresses(list, () => true, 'Write addresses, or networks such as 10.0.0.0/8.') },
  ),
  outbound_allow: setting(
    names,
    [],
    'Host names, addresses and networks, such as 10.0.0.0/8, that webhooks may reach although they are not public, also over http and on any port.',
    {
      problem: (list) =>
        notAddresses(
          list,
          (entry) => entry.includes('/'),
          'Write host names, addresses, or networks such as 10.0.0.0/8.',
        ),
    },
  ),
  max_body_bytes: setting(bytes(64 * KiB, 64 * MiB), 4 * MiB, 'Maximum size of a request body.', { unit: 'bytes' }),
  connections_max: setting(
    count(16, 1_000_000),
    8192,
    'Maximum number of open connections. At the limit idle connections are closed; without one, further connections are refused with 503. At most 256 less than the process may open files.',
    { unit: 'count' },
  ),
  requests_per_key: setting(
    count(1, 100_000),
    512,
    'Maximum number of open requests and streams of one key; further ones are refused with 429.',
    { unit: 'count' },
  ),
  requests_per_org: setting(
    count(1, 100_000),
    1024,
    'Maximum number of open requests and streams of one organization; further ones are refused with 429.',
    { unit: 'count' },
  ),
  ...sharedNetworkSettings,
  ...previewSettings,
  ...packageSettings,
  ...packageCacheSettings,
  transfers_per_key: setting(
    count(1, 1_000),
    8,
    'Maximum number of files that one key reads and writes at the same time; further ones wait, and are refused with 429 after 30 seconds.',
    { unit: 'count' },
  ),
  upload_min_rate: setting(
    bytes(0, GiB),
    KiB,
    'Minimum average rate of an upload in bytes per second. An upload that is 30 seconds behind is refused with 408; 0 sets no rate.',
  ),
  buffer_bytes: setting(
    bytes(64 * MiB, 64 * GiB),
    256 * MiB,
    'Memory for request bodies and for responses that clients have not read. One organization can use a quarter of it.',
    { unit: 'bytes' },
  ),
  runtime_allowed: setting(
    names,
    ['127.0.0.0/8', '::1'],
    'Addresses and networks from which admin tokens may use the runtime tools, at /runtime/rpc and over MCP; trusted_proxies decide the address of the client. An empty list allows every address.',
    { problem: (list) => notAddresses(list, () => true, 'Write addresses, or networks such as 10.0.0.0/8.') },
  ),
  trace_endpoint: setting(
    Type.String({ pattern: '^(https?://[^\\s#]+)?$' }),
    '',
    'Address of an OpenTelemetry collector that receives traces with OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces. Empty: no traces are recorded.',
  ),
  trace_headers: setting(
    names,
    [],
    'Headers of requests to the collector, as NAME=value, best set as GLOVEBOX_TRACE_HEADERS.',
    { secret: true },
  ),
  trace_ratio: setting(
    Type.Number({ minimum: 0, maximum: 1 }),
    1,
    'Share of the traces that are recorded. A client that sends a traceparent decides on its own traces.',
  ),
  heap_dump_dir: setting(
    Type.String({ pattern: '^(/[^\\0]*)?$' }),
    '',
    'Directory for the heap dumps that the runtime tools write, which contain data of callers; it must be writable by front_uid. Empty: no heap dumps are written.',
  ),
  log_level: setting(Type.Enum(logLevels), 'info', 'Minimum level of log messages.'),
  log_format: setting(Type.Enum(logFormats), 'auto', 'auto is pretty on a terminal and JSON lines otherwise.'),
} as const

const machine = {
  home: setting(absolutePath, defaultHome, 'Directory for the database and all other persistent data.'),
  state_dir: setting(
    absolutePath,
    defaultStateDir,
    'Directory for sockets, slots and other data that a reboot may delete.',
  ),
  runtime: setting(
    Type.Enum(['auto', 'crun', 'runc', 'runsc']),
    'auto',
    'OCI runtime that creates slots; auto selects the first that passes the start-up check. runsc does not pass yet, because the host cannot enforce the limits of its runs.',
  ),
  front_uid: setting(id, 61_000, 'User id of the API server process; needs no entry in /etc/passwd.', { unit: 'id' }),
  front_gid: setting(id, 61_000, 'Group id of the API server process.', { unit: 'id' }),
  egress_uid: setting(
    id,
    61_001,
    'User and group id of the process that connects runs to the network; needs no entry in /etc/passwd.',
    { unit: 'id' },
  ),
  id_base: setting(
    Type.Integer({ minimum: 0x1_0000, maximum: 0x7fff_0000, multipleOf: 0x1_0000 }),
    0x7000_0000,
    'First of the user and group ids of slots; each slot uses 65,536 of them.',
    { unit: 'id' },
  ),
} as const

const capacity = {
  slots_max: setting(count(1, 4096), 32, 'Maximum number of slots, busy and idle.', { unit: 'count' }),
  sandboxes_max: setting(
    count(0, 4096),
    16,
    'Maximum number of named sandboxes that run at once; at most slots_max less runs_max, since each has a slot.',
    { unit: 'count' },
  ),
  ...upstreamSettings,
  slots_ready: setting(count(0, 256), 2, 'Unused slots that are kept ready.', { unit: 'count' }),
  slot_idle_s: setting(seconds(0, 86_400), 60, 'Time that an idle slot is kept for the next run of its key.', {
    unit: 'seconds',
  }),
  slot_max_runs: setting(count(1, 1_000_000), 1000, 'Number of runs after which a slot is replaced.', {
    unit: 'count',
  }),
  interpreter_max_age_s: setting(
    seconds(1, 86_400),
    900,
    'Age at which a slot is replaced because runs are forked from its Python interpreter: all forks share its hash seed.',
    { unit: 'seconds', formerNames: ['host_max_age_s'] },
  ),
  prewarm_jails: setting(
    Type.Boolean(),
    true,
    'Whether an idle slot prepares the jail and the interpreter of its next run: a faster start for a few MiB of memory.',
    { formerNames: ['jails_ahead'] },
  ),
  runs_max: setting(count(1, 4096), 16, 'Maximum number of concurrent runs on this machine.', { unit: 'count' }),
  runs_per_org: setting(
    count(1, 4096),
    4096,
    'Maximum number of concurrent runs of one organization; runs_max limits all of them together.',
    { unit: 'count' },
  ),
  queue_per_org: setting(
    count(0, 100_000),
    64,
    'Maximum number of queued runs of one organization; further runs are refused.',
    { unit: 'count' },
  ),
  queue_wait_s: setting(seconds(0, 3600), 30, 'Time that a run may wait in the queue before it is refused.', {
    unit: 'seconds',
  }),
  threads_mounted_max: setting(count(1, 4096), 200, 'Maximum number of mounted threads, in use and idle.', {
    unit: 'count',
  }),
  thread_idle_s: setting(seconds(0, 86_400), 300, 'Time that an idle thread stays mounted for its next run.', {
    unit: 'seconds',
  }),
  thread_durability: setting(
    Type.Enum(['answer', 'seconds']),
    'seconds',
    'When the files of a thread that an answer calls changed survive a power cut: with the answer, which then waits for the disk, or at most five seconds later.',
  ),
  storage_reserve: setting(bytes(0, 1024 * GiB), GiB, 'Free disk space below which no thread is created or mounted.', {
    unit: 'bytes',
  }),
  image_size: setting(
    bytes(64 * MiB, 1024 * GiB),
    16 * GiB,
    'Size of one image with all its files. Only what is used takes room on the disk.',
    { unit: 'bytes' },
  ),
  image_files: setting(count(1_000, 10_000_000), 1_000_000, 'Files, directories and links of one image.', {
    unit: 'count',
  }),
  image_registries: setting(
    Type.Record(Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9.:-]{0,255}$' }), Type.String({ maxLength: 4096 }), {
      additionalProperties: false,
    }),
    {},
    'Addresses of registries by name, such as docker.io: https://user:token@mirror.example https://registry-1.docker.io. They are tried in order, and need not be public. http is for loopback only.',
    { secret: true, problem: registriesProblem },
  ),
  storage_iops: setting(
    count(100, 1_000_000),
    2_000,
    'Disk operations per second that the runs of one slot may make on one thread or volume, reads and writes separately. It limits the processor time that the kernel spends on them outside of the limits of a run, and their share of the disk.',
    { unit: 'count' },
  ),
  run_history_days: setting(
    count(1, 36_500),
    30,
    'Days for which runs can be looked up. The audit log and the usage figures are kept longer.',
    { unit: 'days' },
  ),
  front_grace_s: setting(
    seconds(0, 3600),
    10,
    'Time for which runs continue after the API server process has died; a restarted one takes them over.',
    { unit: 'seconds' },
  ),
  watchdog_s: setting(
    seconds(5, 3600),
    15,
    'Time for which the runner or the API server process may be unresponsive before it is killed and replaced; its runs end as failed or are taken over, as after any other death. `/readyz` reports an unresponsive runner after 5 s.',
    { unit: 'seconds' },
  ),
  drain_s: setting(seconds(0, 3600), 10, 'Time that running code gets to finish when the server stops.', {
    unit: 'seconds',
  }),
} as const

/** The settings that profiles can't override. */
export const serverSettings = { ...server, ...machine, ...capacity } as const
export const settings = { ...serverSettings, ...profileSettings } as const
export const settingGroups = {
  Server: server,
  Machine: machine,
  Capacity: capacity,
  Profile: profileSettings,
} as const

export type SettingName = keyof typeof settings
export type Values = { [Name in SettingName]: Static<(typeof settings)[Name]['schema']> }

export const settingNames = Object.keys(settings) as readonly SettingName[]
export const isSettingName = (name: string): name is SettingName => Object.hasOwn(settings, name)
export const isProfileSettingName = (name: string): name is keyof typeof profileSettings =>
  Object.hasOwn(profileSettings, name)

/** The current name of each former name. */
export const renamedSettings: Readonly<Record<string, SettingName>> = Object.fromEntries(
  settingNames.flatMap((name) => (settings[name] as Setting).formerNames.map((former) => [former, name])),
)

/** Whether an entry is an IP address, or a network in CIDR notation. */
function isAddressOrNetwork(text: string): boolean {
  const [, address = '', bits = '0'] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? []
  return isIP(address) !== 0 && Number(bits) <= (isIP(address) === 4 ? 32 : 128)
}

/** Browsers send an origin in one notation. `null` is that of every sandboxed page, also of those that sandboxes serve. */
function notOrigins(list: readonly string[]): string | undefined {
  const wrong = list.find((entry) => !URL.canParse(entry) || new URL(entry).origin !== entry || entry === 'null')
  if (wrong === undefined) return undefined
  return `${wrong} is not a web origin as browsers send it. Write scheme, host and port only, such as https://app.example.`
}

function notAddresses(list: readonly string[], mustBe: (entry: string) => boolean, remedy: string): string | undefined {
  const wrong = list.find((entry) => mustBe(entry) && !isAddressOrNetwork(entry))
  return wrong === undefined ? undefined : `${wrong} is not an IP address or network. ${remedy}`
}
