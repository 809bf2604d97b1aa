import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Command } from 'commander'
import { openInstance } from '../base/instance.ts'
import { InstanceLock } from '../base/instance-lock.ts'
import type { Config } from '../config.ts'
import { databasePath } from '../store/sqlite.ts'
import { type Cli, withExamples } from './command.ts'
import { engineSettingsOf, preloadsOf } from './engine-settings.ts'
import { receiveConfig, sendConfig } from './hand-over.ts'
import { attempt, type Check, inspect } from './inspect.ts'
import { checkDatabase } from './inspect-database.ts'
import { inspectStorage } from './inspect-storage.ts'
import { printJson, withJson } from './output.ts'
import { ownMounts, requirePrivilege } from './privilege.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'
import { addSettingOptions, configOf } from './setting-options.ts'
import { hasColors, styled } from './terminal.ts'

interface Options {
  json?: boolean
}

export function register(program: Command, { io, exit }: Cli): void {
  withExamples(
    addSettingOptions(
      withJson(
        program
          .command('doctor')
          .description('Check whether this machine can run sandboxes, and explain every problem.'),
      ),
    ),
    'glovebox doctor',
  ).action(async (_: object, command: Command) => exit(await doctor(configOf(command, io), command.opts(), io)))
  // Started by `doctor`, in a mount namespace of its own.
  program
    .command('doctor-inside', { hidden: true })
    .option('--json')
    .action(async (options: Options) => exit(await doctorInside(await receiveConfig(io.stdin), options, io)))
}

/**
 * Checks this machine and prints what it found.
 * @returns 0 only if runs can start and every check passed.
 * @throws StartRefused when it is not run by root.
 */
async function doctor(config: Config, { json = false }: Options, io: ProcessIo): Promise<number> {
  requirePrivilege('doctor')
  // As under `serve`, the engine needs a mount namespace of its own, so a child in one does the checks.
  const [program, ...args] = io.self
  const child = spawn('unshare', [...ownMounts, program, ...args, 'doctor-inside', ...(json ? ['--json'] : [])], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: {
      PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      LANG: 'C.UTF-8',
      FORCE_COLOR: hasColors(io.stdout, io.env) ? '1' : '0',
    },
  })
  child.stdin.on('error', () => undefined) // Its exit code reports the failure.
  sendConfig(child.stdin, config)
  child.stdout.pipe(io.stdout, { end: false })
  child.stderr.pipe(io.stderr, { end: false })
  const [code] = (await once(child, 'close')) as [number | null]
  return code ?? exitCodes.software
}

/** The checks themselves, in a mount namespace of their own. */
async function doctorInside(config: Config, { json = false }: Options, io: ProcessIo): Promise<number> {
  const checks: Check[] = await attempt('home', async () => checkOpened(config))
  if (json) printJson(checks, io)
  else print(checks, io)
  return checks.every(({ ok }) => ok) ? exitCodes.ok : exitCodes.config
}

/** @throws StartRefused when the home directory cannot be used. */
async function checkOpened(config: Config): Promise<Check[]> {
  const instance = openInstance(config.home, config.stateDir)
  const lock = await InstanceLock.acquire(config.home, 'doctor', true)
  // An id of its own: a start removes what an earlier one with the same id left behind, and a server may be running.
  const settings = {
    ...engineSettingsOf(config, instance),
    instanceId: `${instance.id}-doctor`,
    stateDir: join(config.stateDir, `${instance.id}-doctor`),
  }
  const memoryBytes = Math.max(...Object.values(config.profiles).map(({ limits }) => limits.memoryBytes))
  const checks = await inspect(settings, config.home, memoryBytes, preloadsOf(config))
  const hasThreads = Object.values(config.profiles).some(({ storage }) => storage.kind === 'threads')
  checks.push(...(await attempt('database', () => checkDatabase(databasePath(instance.frontHome)))))
  if (hasThreads) checks.push(...(await attempt('threads', async () => [await inspectStorage(config.home)])))
  lock.release()
  return checks
}

function print(checks: readonly Check[], { stdout: out, env }: ProcessIo): void {
  const width = Math.max(...checks.map(({ name }) => name.length))
  for (const { name, ok, detail, remedy } of checks) {
    out.write(
      `${ok ? styled('ok  ', 'green', out, env) : styled('FAIL', 'red', out, env)}  ${name.padEnd(width)}  ${detail}\n`,
    )
    if (remedy !== undefined) out.write(`${' '.repeat(width + 8)}→ ${remedy}\n`)
  }
  const failed = checks.filter(({ ok }) => !ok).length
  out.write(
    failed === 0
      ? '\nAll checks passed: this machine can run sandboxes.\n'
      : `\nNot ready: ${failed} of ${checks.length} checks failed.\n`,
  )
}
