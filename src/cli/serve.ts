import { mkdirSync, rmSync, statSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import type { Command } from 'commander'
import { StartRefused } from '../base/errors.ts'
import { type Instance, openInstance } from '../base/instance.ts'
import { InstanceLock } from '../base/instance-lock.ts'
import type { Config } from '../config.ts'
import { createLog } from '../observe/log.ts'
import { Child, whenAborted } from './child.ts'
import { type Cli, withExamples } from './command.ts'
import { prepareFrontHome } from './front-home.ts'
import { withHostWorkspaces } from './host-workspaces.ts'
import { mainFile } from './main-file.ts'
import { ownMounts, requirePrivilege, runnerCapabilities } from './privilege.ts'
import type { ProcessIo } from './process-io.ts'
import { recordServer } from './server-record.ts'
import { addSettingOptions, configOf } from './setting-options.ts'
import { openServiceManager } from './systemd/notify.ts'
import { frontCommand, isInProgram, programRoot, treeMountPoint } from './unprivileged-command.ts'

export function register(program: Command, { io, exit }: Cli): void {
  withExamples(
    addSettingOptions(program.command('serve').description('Start a server for MCP and REST on this machine.')),
    'glovebox serve --dev',
    'glovebox serve --dev --workspace .:review',
    'glovebox serve --config /etc/glovebox.yaml --host 0.0.0.0',
  ).action(async (_: object, command: Command) => exit(await serve(configOf(command, io), io)))
}

/**
 * The supervisor: starts the runner and the front, restarts them when they die, and stops both. It runs as root and
 * reads nothing that they send.
 * @returns the exit code: 0 after an orderly stop, 128 and its number after a second signal, 78 when the product cannot start as configured.
 * @throws StartRefused for what the supervisor checks itself.
 */
async function serve(given: Config, io: ProcessIo): Promise<number> {
  requirePrivilege('serve')
  requireReadable(given)
  const instance = openInstance(given.home, given.stateDir)
  // Without waiting: another server holds it, not a child of this one that is still ending.
  const lock = await InstanceLock.acquire(given.home, 'supervisor', false)
  prepareDirectories(given, instance)
  const config = withHostWorkspaces(given, instance.stateDir)
  recordServer(instance, config, process.pid)
  const log = createLog({
    level: config.logLevel,
    format: config.logFormat,
    destination: io.stderr,
    bindings: { process: 'supervisor' },
  })
  for (const deprecation of config.deprecations) log.warn(deprecation)
  const manager = await openServiceManager(io.env, log)
  const stopping = new AbortController()
  whenAborted(stopping.signal, () => manager?.stopping())
  whenAborted(io.stop, () => stopping.abort())
  const hurry = new AbortController()
  io.onRepeatedSignal((exitCode) => hurry.abort(exitCode))

  const runner = new Child('runner', runnerCommand(), config, log, stopping)
  const front = new Child('front', frontCommand(config, instance), config, log, stopping)
  const runnerCode = await runner.start()
  const frontCode = runnerCode ?? (await front.start())
  if (frontCode === undefined) manager?.ready()
  if (frontCode === undefined) await new Promise((stopped) => whenAborted(stopping.signal, () => stopped(undefined)))
  // On a second signal no run and no answer is waited for, but nothing is left on the machine either.
  await front.end(config.drainMs + endingMs, hurry.signal)
  await runner.end(endingMs)
  rmSync(join(instance.stateDir, 'link'), { recursive: true, force: true })
  lock.release()
  manager?.close()
  return hurry.signal.aborted ? (hurry.signal.reason as number) : (runner.refusal ?? front.refusal ?? 0)
}

/**
 * How long a process may take to end after draining before it is killed. It exceeds what its parts may take together:
 * the endings of runs and the last answers in the front, slots and storage in the runner.
 */
const endingMs = 15_000

/** @throws StartRefused when the front's user cannot read the program. */
function requireReadable(config: Config): void {
  for (const path of [join(programRoot, mainFile), process.execPath]) {
    if ((statSync(path).mode & 0o004) === 0) {
      throw new StartRefused(
        `The user of the API server (id ${config.frontUid}) cannot read ${path}.`,
        `Run: chmod -R go+rX ${programRoot}`,
      )
    }
  }
  if (!isInProgram(process.execPath)) requirePassable(dirname(process.execPath), config.frontUid)
}

function prepareDirectories(config: Config, instance: Instance): void {
  const { stateDir } = instance
  requirePassable(config.home, config.frontUid)
  mkdirSync(dirname(stateDir), { recursive: true, mode: 0o711 })
  mkdirSync(stateDir, { recursive: true, mode: 0o711 })
  mkdirSync(treeMountPoint(instance), { recursive: true, mode: 0o755 })
  prepareFrontHome(config, instance)
}

/** @throws StartRefused when the front's user cannot reach files below a directory. */
function requirePassable(directory: string, frontUid: number): void {
  for (let at = resolve(directory); at !== dirname(at); at = dirname(at)) {
    if ((statSync(at).mode & 0o001) === 0) {
      throw new StartRefused(`The user of the API server (id ${frontUid}) cannot enter ${at}.`, `Run: chmod o+x ${at}`)
    }
  }
}

/**
 * The runner has its own mount namespace, so its mounts disappear with it and its slots, however it ends. Its copies of the
 * mounts of the machine are slaves, so that they are unmounted with the originals.
 */
function runnerCommand(): string[] {
  const bounds = ['-all', ...runnerCapabilities.map((name) => `+${name}`)].join(',')
  return [
    ...['unshare', ...ownMounts],
    ...['setpriv', `--bounding-set=${bounds}`, '--inh-caps=-all', '--'],
    ...[process.execPath, join(programRoot, mainFile), 'runner'],
  ]
}
