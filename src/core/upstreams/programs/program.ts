import { hash } from 'node:crypto'
import { type JailNetwork, networkPolicies, networkRulesMax, parseRule } from '../../../base/network.ts'
import { isSecretValue, parseSecretHost, secretHostsMax } from '../../../base/network-secrets.ts'
import { Redactor } from '../../../base/redaction/redactor.ts'
import { checkedCount, checkVariableName, invalid } from '../checks.ts'
import type { UpstreamCredential } from '../secrets.ts'

/**
 * Who shares a process. `session`: each session of a client has its own, and a key without sessions has one. `shared`: all
 * keys of the organization with the same credential use one, which must keep no state of a client.
 */
export const programSharings = ['session', 'shared'] as const

/** A program that is run as an upstream. */
export interface UpstreamProgram {
  /** Executed as it is, without a shell. */
  command: string
  args: readonly string[]
  /** Executed once before the first start, with the network of package managers; `null` for what `command` implies. */
  install: readonly string[] | null
  /** Why an argument that looks like a secret is not one; `null` or absent if nothing looks like one. */
  noSecretReason?: string | null
  /** Name of an image; `null` for the default image. */
  image: string | null
  network: { policy: (typeof networkPolicies)[number]; rules: readonly string[] }
  /** Servers that receive the credential. The program then has a placeholder, which is replaced on the way to them. */
  credentialHosts: readonly string[]
  sharing: (typeof programSharings)[number]
  memoryBytes: number
  diskBytes: number
  cpus: number
  /** A process without messages is ended after this time. */
  idleMs: number
  /** Everything in the sandbox is ended this long after its start, whether it is used or not. */
  lifetimeMs: number
}

/** A program as an administrator sets it. An absent field keeps its value, or gets its default. */
export interface ProgramSettings {
  command?: string
  args?: readonly string[]
  install?: readonly string[] | null
  /** Accepts the arguments of the same change although they look like secrets. */
  no_secret_reason?: string | null
  image?: string | null
  network?: { policy: UpstreamProgram['network']['policy']; rules?: readonly string[] }
  credential_hosts?: readonly string[]
  sharing?: UpstreamProgram['sharing']
  memory_bytes?: number
  disk_bytes?: number
  cpus?: number
  idle_ms?: number
  lifetime_ms?: number
}

const mib = 1024 * 1024
const argsMax = 256
const argMaxBytes = 32 * 1024
const reasonMaxBytes = 500
const variablesMax = 64
const variableMaxBytes = 32 * 1024
/** An administrator of an organization decides on these; the operator decides how many programs run at once. */
const limits = {
  memory_bytes: [32 * mib, 8192 * mib],
  disk_bytes: [16 * mib, 32_768 * mib],
  cpus: [0.1, 8],
  idle_ms: [1_000, 24 * 3_600_000],
  lifetime_ms: [1_000, 7 * 24 * 3_600_000],
} as const

const defaults: Omit<UpstreamProgram, 'command'> = {
  ...{ args: [], install: null, image: null, network: { policy: 'none', rules: [] }, credentialHosts: [] },
  ...{ sharing: 'session', memoryBytes: 512 * mib, diskBytes: 1024 * mib, cpus: 1 },
  ...{ idleMs: 10 * 60_000, lifetimeMs: 24 * 3_600_000 },
}

/** Checks a program. @param old what absent fields keep; `null` for a new one. @throws Refusal `invalid_argument`. */
export function checkedProgram(asked: ProgramSettings, old: UpstreamProgram | null): UpstreamProgram {
  const command = asked.command ?? old?.command
  if (command === undefined || !isArgument(command) || command === '') {
    throw invalid('program.command', 'must be the name or the path of a program')
  }
  for (const [name, [min, max]] of Object.entries(limits)) {
    const value = asked[name as keyof typeof limits]
    if (value !== undefined && !(value >= min && value <= max)) {
      throw invalid(`program.${name}`, `must be from ${min} to ${max}`)
    }
  }
  const known = { ...defaults, ...old }
  const { network, credential_hosts: hosts, image, install, args } = asked
  // A reason is about the arguments with which it was given.
  const isNew = args !== undefined || install !== undefined
  const reason = asked.no_secret_reason ?? (isNew ? null : (known.noSecretReason ?? null))
  if (reason !== null) checkReason(reason)
  return {
    command,
    args: args === undefined ? known.args : checkedArgs('program.args', args, reason),
    install: install === undefined ? known.install : install && checkedInstall(install, reason),
    noSecretReason: reason,
    image: image === undefined ? known.image : image && checkedImage(image),
    network: network === undefined ? known.network : checkedNetwork(network),
    credentialHosts: hosts === undefined ? known.credentialHosts : checkedHosts(hosts),
    sharing: asked.sharing ?? known.sharing,
    memoryBytes: asked.memory_bytes ?? known.memoryBytes,
    diskBytes: Math.max(asked.disk_bytes ?? known.diskBytes, old?.diskBytes ?? 0),
    cpus: asked.cpus ?? known.cpus,
    idleMs: asked.idle_ms ?? known.idleMs,
    lifetimeMs: asked.lifetime_ms ?? known.lifetimeMs,
  }
}

/** Returns the program of an upstream; `null` if it has another transport. */
export const programOf = ({ program }: { program: string | null }): UpstreamProgram | null =>
  program === null ? null : (JSON.parse(program) as UpstreamProgram)

/** Checks that a program can get its credential as it is set. @throws Refusal `invalid_argument`. */
export function checkCredentialOf({ credentialHosts, network }: UpstreamProgram, of: UpstreamCredential | null): void {
  if (of !== null && of.in !== 'env') throw invalid('credential.in', 'must be env for a program')
  if (credentialHosts.length === 0) return
  if (of === null) throw invalid('program.credential_hosts', 'need a credential')
  if (network.policy === 'none') throw invalid('program.credential_hosts', 'need a network that reaches them')
  if (!of.values.every(isSecretValue)) {
    throw invalid('credential.values', 'must have 8 to 4096 printable characters to be replaced in requests')
  }
}

/** Checks and returns variables of a program. @throws Refusal `invalid_argument`. */
export function checkedVariables(env: Readonly<Record<string, string>>): Record<string, string> {
  const entries = checkedCount('env', Object.entries(env), variablesMax)
  for (const [name, value] of entries) {
    checkVariableName(`env.${name.slice(0, 64)}`, name)
    if (!isText(value) || Buffer.byteLength(value) > variableMaxBytes) {
      throw invalid(`env.${name}`, `must be text of at most ${variableMaxBytes} bytes without NUL`)
    }
  }
  return Object.fromEntries(entries)
}

/** Arguments are visible to every process in the sandbox and in lists, so none may be a secret. @param reason why what looks like one is not. */
function checkedArgs(field: string, args: readonly string[], reason: string | null): readonly string[] {
  for (const arg of checkedCount(field, args, argsMax)) {
    if (!isArgument(arg)) throw invalid(field, `must have entries of at most ${argMaxBytes} bytes without NUL`)
  }
  if (reason === null && new Redactor().redact(args.join('\n')).text !== args.join('\n')) {
    const otherwise = 'if it is not a secret, give the reason in program.no_secret_reason'
    throw invalid(field, `contains a secret; use env or credential, which are stored encrypted; ${otherwise}`)
  }
  return [...args]
}

function checkReason(reason: string): void {
  if (!isText(reason) || reason.trim() === '' || Buffer.byteLength(reason) > reasonMaxBytes) {
    throw invalid('program.no_secret_reason', `must be text of at most ${reasonMaxBytes} bytes`)
  }
}

function checkedInstall(install: readonly string[], reason: string | null): readonly string[] {
  if (install.length === 0) throw invalid('program.install', 'must have an entry; null removes it')
  return checkedArgs('program.install', install, reason)
}

function checkedImage(image: string): string {
  if (!/^[A-Za-z0-9][\w.:/@+-]{0,254}$/.test(image)) throw invalid('program.image', 'must be the name of an image')
  return image
}

function checkedNetwork({ policy, rules = [] }: NonNullable<ProgramSettings['network']>): UpstreamProgram['network'] {
  if (!networkPolicies.includes(policy)) throw invalid('program.network.policy', `must be one of ${networkPolicies}`)
  for (const rule of checkedCount('program.network.rules', rules, networkRulesMax)) {
    if (parseRule(rule) === undefined) {
      throw invalid('program.network.rules', `has an entry that is no destination: ${rule.slice(0, 64)}`)
    }
  }
  if (policy === 'none' && rules.length > 0) throw invalid('program.network.policy', 'must not be none with rules')
  if (policy === 'allow' && rules.length === 0) throw invalid('program.network.rules', 'must have an entry for allow')
  return { policy, rules: [...rules] }
}

function checkedHosts(hosts: readonly string[]): readonly string[] {
  for (const host of checkedCount('program.credential_hosts', hosts, secretHostsMax)) {
    if (parseSecretHost(host) === undefined) {
      throw invalid('program.credential_hosts', `has an entry that is no server: ${host.slice(0, 64)}`)
    }
  }
  return [...hosts]
}

const isText = (text: string): boolean => !text.includes('\0') && text.isWellFormed()
const isArgument = (text: string): boolean => isText(text) && Buffer.byteLength(text) <= argMaxBytes

/** The connections of a program. */
const networkLimits = { connections: 64, bytes: 0, bytesPerSecond: 0 }

/** Returns the network of a program. @param packages that of package managers. */
export function networkOf(
  { network: { policy, rules } }: UpstreamProgram,
  packages: JailNetwork,
): JailNetwork | undefined {
  switch (policy) {
    case 'none':
      return undefined
    case 'packages':
      return rules.length === 0 ? packages : { ...packages, rules }
    case 'allow':
    case 'public':
      return { policy, rules, limits: networkLimits }
  }
}

/** Runners of packages, with the arguments that make them install a package without starting it. */
const packageRunners: Readonly<Record<string, (spec: string) => readonly string[]>> = {
  npx: (spec) => ['--yes', `--package=${spec}`, '--', 'node', '--version'],
  uvx: (spec) => [`--from=${spec.replace(/@latest$/, '').replace(/^([^@]+)@(\d)/, '$1==$2')}`, 'python', '--version'],
  bunx: (spec) => ['--package', spec, 'bun', '--version'],
}
/** Options of these runners that are followed by a value of their own. */
const packageOption = /^(?:-p|--package|--from)$/
const otherOption = /^(?:--registry|--index|--index-url|--python|-c|--call|--with)$/

/** Returns the command that installs a program; `null` if there is nothing to install. */
export function installOf({ command, args, install }: UpstreamProgram): readonly string[] | null {
  if (install !== null) return install
  const runner = packageRunners[command.slice(command.lastIndexOf('/') + 1)]
  const spec = runner && packageOf(args)
  return spec ? [command, ...runner(spec)] : null
}

function packageOf(args: readonly string[]): string | undefined {
  for (let at = 0; at < args.length; at++) {
    const arg = args[at]!
    const named = /^(?:--package|--from)=(.+)$/.exec(arg)?.[1]
    if (named !== undefined) return named
    if (packageOption.test(arg)) return args[at + 1]
    if (otherOption.test(arg)) at += 1
    else if (!arg.startsWith('-')) return arg
  }
  return undefined
}

/** Names what is installed: another program, image or installation has another one. */
export const installationOf = (program: UpstreamProgram): string =>
  hash('sha256', JSON.stringify([program.image, installOf(program)]))

/** Makes package runners use what is installed, since a program usually reaches no registry. */
export const offlineEnv: Readonly<Record<string, string>> = {
  npm_config_offline: 'true',
  npm_config_update_notifier: 'false',
  UV_OFFLINE: '1',
  UV_NO_PROGRESS: '1',
}
