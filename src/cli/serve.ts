import { mkdirSync, rmSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { StartRefused } from '../base/errors.ts'
import { type Instance, openInstance } from '../base/instance.ts'
import { InstanceLock } from '../base/instance-lock.ts'
import type { Config } from '../config.ts'
import { createLog } from '../observe/log.ts'
import { Child } from './child.ts'
import { prepareFrontHome } from './front-home.ts'
import { requirePrivilege } from './privilege.ts'
import type { Io } from './process-io.ts'

const programRoot = resolve(fileURLToPath(new URL('../..', import.meta.url)))

/**
 * What the runner may do as root: make namespaces and mounts, give and take ids, end processes that are not its own,
 * write cgroup files, set limits. Nothing about devices, kernel modules, raw sockets or the clock.
 */
const runnerCapabilities = [
  'chown',
  'dac_override',
  'fowner',
  'kill',
  'net_admin',
  'setgid',
  'setpcap',
  'setuid',
  'sys_admin',
  'sys_chroot',
  'sys_ptrace',
  'sys_resource',
]

/**
 * The supervisor: starts the runner and the front, restarts either, ends both. It is root and parses nothing that
 * comes from them.
 * @returns the exit code: 0 after an orderly stop, 78 when the product cannot start as asked.
 * @throws StartRefused for what it can see itself.
 */
export async function serve(config: Config, io: Io): Promise<number> {
  requirePrivilege('serve')
  requireReadable(config)
  const instance = openInstance(config.home, config.stateDir)
  // Refused at once: who holds it is another server, not a child of ours that is still ending.
  const lock = await InstanceLock.acquire(config.home, 'supervisor', false)
  prepareDirectories(config, instance)
  const log = createLog({
    level: config.logLevel,
    format: config.logFormat,
    destination: io.stderr,
    bindings: { process: 'supervisor' },
  })
  for (const deprecation of config.deprecations) log.warn(deprecation)
  const stopping = new AbortController()
  whenAborted(io.stop, () => stopping.abort())

  const runner = new Child('runner', runnerCommand(), config, log, stopping)
  const front = new Child('front', frontCommand(config, instance), config, log, stopping)
  const runnerCode = await runner.start()
  const frontCode = runnerCode ?? (await front.start())
  if (frontCode === undefined) await new Promise((stopped) => whenAborted(stopping.signal, () => stopped(undefined)))
  await front.end(config.drainMs + endingMs)
  await runner.end(endingMs)
  rmSync(join(instance.stateDir, 'link'), { recursive: true, force: true })
  lock.release()
  return runner.refusal ?? front.refusal ?? 0
}

/**
 * What a process may take to end by itself, beyond draining; then it is killed. More than its own parts may take
 * together: the endings of runs and the last answers in the front, slots and storage in the runner.
 */
const endingMs = 15_000

function whenAborted(signal: AbortSignal, then: () => void): void {
  if (signal.aborted) then()
  else signal.addEventListener('abort', then)
}

/** @throws StartRefused where the front could not read its own program. */
function requireReadable(config: Config): void {
  for (const path of [join(programRoot, 'src', 'main.ts'), process.execPath]) {
    if ((statSync(path).mode & 0o004) === 0) {
      throw new StartRefused(
        `${path} cannot be read by the front's user (id ${config.frontUid}).`,
        `Run: chmod -R go+rX ${programRoot}`,
      )
    }
  }
}

function prepareDirectories(config: Config, instance: Instance): void {
  const { stateDir, frontProgram } = instance
  requirePassable(config.home, config.frontUid)
  mkdirSync(dirname(stateDir), { recursive: true, mode: 0o711 })
  mkdirSync(stateDir, { recursive: true, mode: 0o711 })
  mkdirSync(frontProgram, { recursive: true, mode: 0o755 })
  prepareFrontHome(config, instance)
}

/** @throws StartRefused where the front's user could not reach what is below a directory. */
function requirePassable(directory: string, frontUid: number): void {
  for (let at = resolve(directory); at !== dirname(at); at = dirname(at)) {
    if ((statSync(at).mode & 0o001) === 0) {
      throw new StartRefused(`The front's user (id ${frontUid}) cannot pass through ${at}.`, `Run: chmod o+x ${at}`)
    }
  }
}

/** A mount namespace of its own: what the runner mounts ends with it and its slots, however it ends. */
function runnerCommand(): string[] {
  const bounds = ['-all', ...runnerCapabilities.map((name) => `+${name}`)].join(',')
  return [
    ...['unshare', '--mount', '--propagation', 'private', '--'],
    ...['setpriv', `--bounding-set=${bounds}`, '--inh-caps=-all', '--'],
    ...[process.execPath, join(programRoot, 'src', 'main.ts'), 'runner'],
  ]
}

/**
 * The front is never root, not even for a moment of its own code: its program is bound to a place that its user can
 * reach, read-only and in a mount namespace of its own, and only then, without any capability, Node starts.
 */
function frontCommand({ frontUid, frontGid }: Config, { frontProgram }: Instance): string[] {
  const script =
    'mount --rbind "$1" "$2" && mount -o remount,bind,ro,nosuid,nodev "$2" && cd "$2" && shift 2 && exec setpriv "$@"'
  const node = relative(programRoot, process.execPath)
  return [
    ...['unshare', '--mount', '--propagation', 'private', '--'],
    ...['sh', '-c', script, 'sh', programRoot, frontProgram],
    ...[`--reuid=${frontUid}`, `--regid=${frontGid}`, '--clear-groups'],
    ...['--no-new-privs', '--bounding-set=-all', '--inh-caps=-all', '--'],
    ...[node.startsWith('..') ? process.execPath : join(frontProgram, node)],
    ...[join(frontProgram, 'src', 'main.ts'), 'front'],
  ]
}
