/** A separate engine for one test file: own directories, own cgroups, and the guest built from the current sources. */
import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Language, Limits, RunSpec } from '../../src/base/run.ts'
import { type Machine, openMachine } from '../../src/engine/machine.ts'
import { type EngineSettings, engineDefaults, type RuntimeName } from '../../src/engine/settings.ts'
import type { Slot, SlotRun, SlotRunResult } from '../../src/engine/slots/slot.ts'
import type { OpenDock } from '../../src/engine/slots/slot-parts.ts'
import { builtGuest } from './built-guest.ts'

export interface EngineMachine {
  settings: EngineSettings
  open(openDock?: OpenDock): Promise<Machine>
  /** What this instance has on the host: nothing, after everything was closed. */
  leftovers(): string[]
  remove(): void
}

export function engineMachine(runtime: 'auto' | RuntimeName): EngineMachine {
  const dir = mkdtempSync(join(tmpdir(), 'glovebox-engine-'))
  chmodSync(dir, 0o711)
  const guest = builtGuest('static')
  const settings: EngineSettings = {
    ...engineDefaults,
    runtime,
    stateDir: join(dir, 'state'),
    instanceId: `t${randomBytes(4).toString('hex')}`,
    idLeaseDir: join(dir, 'ids'),
    guestPath: join(guest, 'guest'),
    pythonZygotePath: join(guest, 'python-zygote.so'),
    nodePath: process.execPath,
  }
  return {
    settings,
    open: (openDock) => openMachine(settings, openDock),
    leftovers: () => [
      ...cgroupsOf(settings),
      ...(existsSync(settings.idLeaseDir) ? readdirSync(settings.idLeaseDir).map((name) => `lease ${name}`) : []),
      ...(existsSync(settings.stateDir) ? [settings.stateDir] : []),
      ...readFileSync('/proc/self/mountinfo', 'utf8')
        .split('\n')
        .filter((line) => line.includes(dir)),
    ],
    remove: () => rmSync(dir, { recursive: true, force: true }),
  }
}

/** A cgroup in one leaf of a slot: nothing can remove the slot while it exists. @returns its removal. */
export function holdSlot(settings: EngineSettings, slotId: string): () => void {
  const place = cgroupsOf(settings).find((path) => existsSync(join(path, slotId, 'run')))
  if (place === undefined) throw new Error(`${slotId} has no cgroup`)
  const held = join(place, slotId, 'run', 'held')
  mkdirSync(held)
  return () => rmdirSync(held)
}

function cgroupsOf({ cgroupRoot, instanceId }: EngineSettings): string[] {
  const places = readdirSync(cgroupRoot).map((name) => join(cgroupRoot, name))
  return [cgroupRoot, ...places].map((place) => join(place, 'glovebox', instanceId)).filter((path) => existsSync(path))
}

export const installed = (runtime: RuntimeName): boolean =>
  ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin'].some((dir) => existsSync(join(dir, runtime)))

export const testLimits: Limits = {
  memoryBytes: 128 * 1024 ** 2,
  cpus: 1,
  pids: 32,
  openFiles: 256,
  fileBytes: 8 * 1024 ** 2,
  tmpBytes: 16 * 1024 ** 2,
  homeBytes: 16 * 1024 ** 2,
  outputSoftBytes: 64 * 1024,
  outputHardBytes: 1024 ** 2,
  timeoutMs: 20_000,
}

export interface Ran extends SlotRunResult {
  stdout: string
  stderr: string
}

/** A run under `testLimits`. */
export const specOf = (
  language: Language,
  options: { timeoutMs?: number; env?: Record<string, string> } = {},
): RunSpec => ({
  runId: 'trc_test',
  orgId: 'org_test',
  keyId: 'key_test',
  profile: 'default',
  profileRevision: '1',
  reuse: 'key',
  language,
  env: options.env ?? {},
  limits: { ...testLimits, timeoutMs: options.timeoutMs ?? testLimits.timeoutMs },
  detached: false,
})

/** Starts code in a slot that was bound to `testLimits`. */
export function start(
  slot: Slot,
  language: Language,
  code: string,
  options: {
    stdin?: string
    timeoutMs?: number
    env?: Record<string, string>
    onRunning?: () => void
    /** For how many milliseconds output beyond the soft limit is not read. */
    excess?: (bytes: number) => number
    dock?: string
    volumes?: string
  } = {},
): { run: SlotRun; ran: Promise<Ran> } {
  const spec = specOf(language, options)
  const said: Record<'stdout' | 'stderr', Buffer[]> = { stdout: [], stderr: [] }
  const stdin = options.stdin === undefined ? undefined : Buffer.from(options.stdin)
  const run = slot.run(
    spec,
    { code: Buffer.from(code), stdin },
    {
      running: options.onRunning ?? (() => undefined),
      output: (stream, bytes) => said[stream].push(Buffer.from(bytes)),
      excess: options.excess ?? (() => 0),
      image: () => undefined,
    },
    { dock: options.dock, volumes: options.volumes },
  )
  const text = (stream: 'stdout' | 'stderr') => Buffer.concat(said[stream]).toString('utf8')
  return { run, ran: run.ended.then((result) => ({ ...result, stdout: text('stdout'), stderr: text('stderr') })) }
}

/** Lets a slot make everything ready for a run of this language, and waits for it. @throws Error when it does not come. */
export async function prewarm(slot: Slot, language: Language, env: Record<string, string> = {}): Promise<void> {
  slot.prewarm(specOf(language, { env }))
  for (let waitedMs = 0; slot.prewarmed !== 'ready'; waitedMs += 2) {
    if (!slot.healthy || waitedMs > 20_000)
      throw new Error(`nothing is ready: ${slot.unhealthyReason ?? 'it takes too long'}`)
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
}
