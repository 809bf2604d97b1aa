import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Writable } from 'node:stream'
import { openInstance } from '../base/instance.ts'
import { InstanceLock } from '../base/instance-lock.ts'
import type { Config } from '../config.ts'
import { engineSettingsOf, preloadsOf } from './engine-settings.ts'
import { sendConfig } from './hand-over.ts'
import { type Check, inspect } from './inspect.ts'
import { inspectStorage } from './inspect-storage.ts'
import { requirePrivilege } from './privilege.ts'
import { exitCodes, type Io } from './process-io.ts'

/**
 * Says what this machine offers and what stands in the way.
 * @returns 0 only if a run can start, and everything looked at is well.
 * @throws StartRefused where it may not even look.
 */
export async function doctor(config: Config, io: Io): Promise<number> {
  requirePrivilege('doctor')
  // The engine works in a mount namespace of its own, as under `serve`, so the looking is done by a child in one.
  const [program, ...words] = io.self
  const child = spawn('unshare', ['--mount', '--propagation', 'private', '--', program, ...words, 'doctor-inside'], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', LANG: 'C.UTF-8' },
  })
  child.stdin.on('error', () => undefined) // Its exit says it.
  sendConfig(child.stdin, config)
  child.stdout.pipe(io.stdout, { end: false })
  child.stderr.pipe(io.stderr, { end: false })
  const [code] = await once(child, 'close')
  return (code as number | null) ?? exitCodes.software
}

/** The part of `doctor` that looks; it runs in a mount namespace of its own. */
export async function doctorInside(config: Config, io: Io): Promise<number> {
  const instance = openInstance(config.home, config.stateDir)
  const lock = await InstanceLock.acquire(config.home, 'doctor', true)
  // An instance of its own beside the one that may be serving: a start removes what an earlier one of its id left.
  const settings = {
    ...engineSettingsOf(config, instance),
    instanceId: `${instance.id}-doctor`,
    stateDir: join(config.stateDir, `${instance.id}-doctor`),
  }
  const memoryBytes = Math.max(...Object.values(config.profiles).map(({ limits }) => limits.memoryBytes))
  const checks = await inspect(settings, memoryBytes, preloadsOf(config))
  const hasThreads = Object.values(config.profiles).some(({ storage }) => storage.kind === 'threads')
  if (hasThreads) checks.push(await inspectStorage(config.home))
  lock.release()
  print(checks, io.stdout)
  return checks.every(({ ok }) => ok) ? exitCodes.ok : exitCodes.config
}

function print(checks: readonly Check[], out: Writable): void {
  const width = Math.max(...checks.map(({ name }) => name.length))
  for (const { name, ok, detail, remedy } of checks) {
    out.write(`${ok ? 'ok  ' : 'FAIL'}  ${name.padEnd(width)}  ${detail}\n`)
    if (remedy !== undefined) out.write(`${' '.repeat(width + 8)}→ ${remedy}\n`)
  }
  const failed = checks.filter(({ ok }) => !ok).length
  out.write(failed === 0 ? '\nRuns can start here.\n' : `\nNot ready: ${failed} of ${checks.length} checks failed.\n`)
}
