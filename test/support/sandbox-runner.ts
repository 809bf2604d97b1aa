/** A runner with sandboxes and its client, for one test file. */
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pino } from 'pino'
import type { ProcessEnding, ProcessEvent, ProcessSpec, SandboxSpec } from '../../src/base/sandbox.ts'
import { RunnerClient } from '../../src/runner/client/client.ts'
import { openRunner, type RunningRunner } from '../../src/runner/process.ts'
import { type EngineMachine, engineMachine, testLimits } from './engine-machine.ts'
import { imageSettings } from './image-settings.ts'

const mib = 1024 * 1024

export interface SandboxRunner {
  client: RunnerClient
  machine: EngineMachine
  /** Where the disks are. */
  storageDir: string
  /** Memory that the kernel charges to all slots, with pages of files, in bytes. */
  heldBytes(): number
  /** The guest of the slot that a process is in. */
  guestOf(pid: number): number
  /** Python kernels, and interpreters that wait to become one, under the limits of runs: their numbers on the host. */
  pythons(): number[]
  /** The same of sandboxes: not those in slots that nothing uses yet. */
  pythonsOfSandboxes(): number[]
  /** Another front of the same runner. */
  connect(): Promise<RunnerClient>
  /** Ends the runner and starts another one with the same disks. */
  restart(): Promise<void>
  /** Ends everything. @returns what is left on the machine. */
  close(): Promise<string[]>
}

/** Opens it in the private mount namespace of the caller. */
export async function sandboxRunner(
  options: { sandboxesMax?: number; slotsMax?: number; slotsReady?: number; idleMemoryMs?: number } = {},
): Promise<SandboxRunner> {
  const dir = mkdtempSync(join(tmpdir(), 'glovebox-sandboxes-'))
  chmodSync(dir, 0o711)
  const machine = engineMachine('auto')
  const socketPath = join(dir, 'link', 'runner.sock')
  const clients: RunnerClient[] = []
  const { sandboxesMax = 6, slotsMax = 8, slotsReady = 1, idleMemoryMs } = options
  const pool = { slotsMax, slotsReady, idleMs: 60_000, runsPerSlot: 1_000, zygoteMaxAgeMs: 900_000, prewarmJails: true }
  const open = (): Promise<RunningRunner> =>
    openRunner(
      {
        instance: { id: 'sandboxes', stateDir: dir, socketPath, frontHome: '', frontProgram: '' },
        engine: machine.settings,
        pool,
        queue: { places: 2, placesPerOrg: 2, waitingPerOrg: 8, waitMs: 30_000 },
        sandboxesMax,
        ...(idleMemoryMs !== undefined && { idleMemoryMs }),
        // As root: only the command of a server starts it as another user.
        brokerCommand: [process.execPath, join(import.meta.dirname, '../../src/main.ts'), 'broker'],
        preloads: [],
        images: imageSettings(dir),
        storage: {
          home: join(dir, 'storage'),
          mountsDir: join(dir, 'mounts'),
          reserveBytes: 0,
          durability: 'seconds',
          mountedMax: slotsMax + 2,
          idleMs: 60_000,
        },
        frontUid: 61_000,
        frontGid: 61_000,
        graceMs: 1_000,
      },
      pino({ level: process.env.SHOW_LOG ?? 'silent' }, pino.destination(2)),
    )
  const connect = async (): Promise<RunnerClient> => {
    const client = new RunnerClient(socketPath, (problem) => {
      throw new Error(problem)
    })
    clients.push(client)
    while (!client.readiness.ready) await sleep(5)
    return client
  }
  let running = await open()
  const client = await connect()
  return {
    client,
    machine,
    storageDir: join(dir, 'storage'),
    heldBytes: () => heldBytes(machine),
    guestOf: (pid) => guestOf(machine, pid),
    pythons: () => pythonsIn(slotsOf(machine)),
    // Such a slot has its jailer and an interpreter; a sandbox has an agent as well.
    pythonsOfSandboxes: () => pythonsIn(slotsOf(machine).filter((slot) => pidsIn(join(slot, 'run')).length > 2)),
    connect,
    restart: async () => {
      await running.close()
      running = await open()
      while (!client.readiness.ready) await sleep(5)
    },
    close: async () => {
      for (const each of clients) await each.close()
      await running.close()
      const left = machine.leftovers()
      machine.remove()
      rmSync(dir, { recursive: true, force: true })
      return left
    },
  }
}

/** The memory cgroups of all slots, in either version of cgroups. */
function slotsOf({ settings: { cgroupRoot, instanceId } }: EngineMachine): string[] {
  const root = existsSync(join(cgroupRoot, 'memory')) ? join(cgroupRoot, 'memory') : cgroupRoot
  const slots = join(root, 'glovebox', instanceId)
  return readdirSync(slots, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => join(slots, name))
}

const pidsIn = (cgroup: string): number[] =>
  readFileSync(join(cgroup, 'cgroup.procs'), 'latin1').trim().split('\n').map(Number)

function heldBytes(machine: EngineMachine): number {
  const files = ['memory.usage_in_bytes', 'memory.current']
  const ofSlot = (slot: string) => files.map((name) => join(slot, 'run', name)).find((path) => existsSync(path))
  return slotsOf(machine).reduce((sum, slot) => sum + Number(readFileSync(ofSlot(slot)!, 'latin1')), 0)
}

const pythonsIn = (slots: string[]): number[] =>
  slots.flatMap((slot) => pidsIn(join(slot, 'run')).filter(isPythonKernel))

function isPythonKernel(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes('kernels/python/main.py')
  } catch {
    return false // It has ended.
  }
}

function guestOf(machine: EngineMachine, pid: number): number {
  const slot = slotsOf(machine).find((dir) => pidsIn(join(dir, 'run')).includes(pid))
  return Math.min(...pidsIn(join(slot!, 'base')))
}

let sandboxes = 0

/** A sandbox whose id no other test has. */
export function sandboxSpec(more: Partial<SandboxSpec> = {}): SandboxSpec {
  sandboxes += 1
  const { memoryBytes, cpus, pids, openFiles, fileBytes, tmpBytes } = testLimits
  return {
    sandboxId: `sbx${process.pid}n${sandboxes}`,
    orgId: 'org_a',
    keyId: 'key_a',
    env: {},
    workdir: '/home/baponi',
    user: 'baponi',
    limits: { memoryBytes, cpus, pids, openFiles, fileBytes: fileBytes * 16, tmpBytes },
    disk: { bytes: 64 * mib, inodes: 4_096 },
    ...more,
  }
}

export interface Executed {
  ending: ProcessEnding
  stdout: string
  stderr: string
  channel: string
  events: ProcessEvent[]
}

/** Follows a process until it has ended. */
export async function follow(
  client: RunnerClient,
  sandboxId: string,
  processId: number,
  afterSeq = 0,
): Promise<Executed> {
  const said = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[], channel: [] as Uint8Array[] }
  const events: ProcessEvent[] = []
  for await (const event of client.sandboxes.processes.attach(sandboxId, processId, afterSeq)) {
    events.push(event)
    if (event.kind === 'output') said[event.stream].push(event.bytes)
    if (event.kind !== 'ended') continue
    const text = (stream: keyof typeof said) => Buffer.concat(said[stream]).toString()
    return {
      ending: event.ending,
      stdout: text('stdout'),
      stderr: text('stderr'),
      channel: text('channel'),
      events,
    }
  }
  throw new Error('no ending')
}

/** Starts a process and follows it until it has ended. */
export async function execute(
  client: RunnerClient,
  sandboxId: string,
  argv: readonly string[],
  more: Partial<ProcessSpec> = {},
): Promise<Executed> {
  const { processId } = await client.sandboxes.processes.start(sandboxId, { argv, ...more })
  return follow(client, sandboxId, processId)
}

/** Loop devices whose backing file is below a directory. */
export const loopDevicesOf = (dir: string): string[] =>
  readdirSync('/sys/block').filter((name) => {
    if (!name.startsWith('loop')) return false
    try {
      return readFileSync(`/sys/block/${name}/loop/backing_file`, 'utf8').startsWith(dir)
    } catch {
      return false
    }
  })
