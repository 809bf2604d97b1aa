/**
 * Which module may import which, and why. Any other import is forbidden. Imports point in one direction:
 * base ← {observe, kernel} ← {store, outbound, storage, engine} ← runner ← core ← {gateway} ← tools ← mcp ← http ← app ← main.
 */
export const importTable: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  base: {},
  observe: { base: 'ids and errors are what is logged' },
  config: {
    base: 'refusals of a start, languages, profiles',
    observe: 'levels and formats of the log are settings',
  },
  store: { base: 'rows speak of runs in the words of base', observe: 'logs' },
  outbound: { base: 'refusals', observe: 'logs' },
  kernel: {},
  storage: { base: 'words and refusals', observe: 'logs', kernel: 'mounts, disks and files by descriptor' },
  engine: { base: 'words of a run, limits, cleanup', observe: 'logs', kernel: 'bind mounts of the image' },
  runner: {
    base: 'words of a run',
    observe: 'logs',
    kernel: 'credentials of the peer of its socket',
    engine: 'the runner owns the slots',
    storage: 'the runner owns threads and volumes',
  },
  core: {
    base: 'words, refusals, profiles',
    observe: 'logs and faults',
    store: 'verbs read and write rows',
    outbound: 'webhooks are delivered',
    runner: 'the run protocol; see importLimits',
  },
  gateway: {
    base: 'refusals and JSON',
    outbound: 'only allowed addresses are reached',
    core: 'callers, upstreams and their rights',
  },
  tools: {
    base: 'words and refusals',
    observe: 'logs',
    core: 'a tool is a verb of core with a schema',
    gateway: 'tools of upstreams',
  },
  mcp: { base: 'refusals', observe: 'logs', core: 'callers', tools: 'the catalog' },
  http: {
    base: 'refusals',
    observe: 'logs and faults',
    core: 'verbs of REST',
    tools: 'schemas of bodies',
    mcp: 'the protocol behind /mcp',
    gateway: 'the relay to upstreams',
  },
  app: {
    base: 'cleanup',
    observe: 'makes the log',
    config: 'reads the settings',
    store: 'opens the rows',
    outbound: 'builds the guarded HTTP client',
    runner: 'connects to the runner',
    core: 'builds core',
    gateway: 'builds the gateway',
    tools: 'builds the catalog',
    mcp: 'builds the protocol',
    http: 'builds the server',
  },
  cli: {
    base: 'words and refusals',
    observe: 'makes the log of a process',
    config: 'resolves the settings',
    store: 'commands on rows',
    storage: 'commands on threads and volumes',
    engine: 'doctor looks at the engine',
    runner: 'starts the runner',
    core: 'commands on the product',
    gateway: 'reads the tools of an upstream',
    outbound: 'reaches upstreams',
    tools: 'commands on tools',
    mcp: 'commands on the protocol',
    http: 'starts the front',
    app: 'starts the front',
  },
  main: { cli: 'hands the process to the program', app: 'hands the process to the app' },
}

/** Imports between modules that are limited to some files. */
export const importLimits: readonly { from: string; to: string; files: readonly string[]; reason: string }[] = [
  {
    from: 'core',
    to: 'runner',
    files: ['src/runner/protocol/messages.ts', 'src/runner/client/client.ts'],
    reason: 'the front must not call code of the runner',
  },
  {
    from: 'app',
    to: 'runner',
    files: ['src/runner/protocol/messages.ts', 'src/runner/client/client.ts'],
    reason: 'the front must not call code of the runner',
  },
]

/** Files directly in src/ and the module that each belongs to. */
export const topFiles: Readonly<Record<string, string>> = {
  'src/main.ts': 'main',
  'src/app.ts': 'app',
  'src/config.ts': 'config',
  'src/config-sources.ts': 'config',
  'src/setting.ts': 'config',
  'src/settings.ts': 'config',
  'src/profile-settings.ts': 'config',
}

/** Packages and the modules that may import them, so that a package can be replaced in one place. */
export const packageTable: Readonly<Record<string, { modules: readonly string[]; reason: string }>> = {
  '@fastify/cors': { modules: ['http'], reason: 'CORS' },
  ajv: { modules: ['base'], reason: 'validation of JSON' },
  commander: { modules: ['cli'], reason: 'the command line' },
  'content-type': { modules: ['http'], reason: 'content type of a POST' },
  'eventsource-parser': { modules: ['cli', 'gateway'], reason: 'server-sent events of other servers' },
  'fastest-levenshtein': { modules: ['base'], reason: 'the argument that a misspelled name means' },
  fastify: { modules: ['http'], reason: 'only http depends on the web framework' },
  fresh: { modules: ['http'], reason: 'conditional requests' },
  kysely: { modules: ['store'], reason: 'only store depends on SQL' },
  negotiator: { modules: ['http'], reason: 'the Accept header' },
  'lru-cache': { modules: ['core', 'gateway'], reason: 'caches with a bound and an age' },
  pino: { modules: ['observe'], reason: 'redaction applies to every line' },
  'pino-pretty': { modules: ['observe'], reason: 'redaction applies to every line' },
  'prom-client': { modules: ['observe'], reason: 'only observe depends on the format of metrics' },
  'range-parser': { modules: ['http'], reason: 'the Range header' },
  undici: { modules: ['outbound', 'gateway'], reason: 'pooled connections to upstreams' },
  '@modelcontextprotocol/client': {
    modules: ['gateway'],
    reason: 'reads the tools of upstreams of any protocol version',
  },
  typebox: {
    modules: ['base', 'config', 'runner', 'tools', 'mcp', 'http'],
    reason: 'schemas of what comes from outside',
  },
  yaml: { modules: ['config'], reason: 'the configuration file' },
}
